//! Cuts a snapshot to a size.
//!
//! Promises: the goal's input, its amendments, the effective input, the tools and the
//! result's schema are never touched; what is cut is counted; the largest outputs go
//! first; the same snapshot is cut in the same way. Must never know: who reads it.

use detent_protocol::json::{Digest, size_bytes};
use detent_protocol::messages::Snapshot;
use detent_protocol::{Code, Fault};
use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Largest snapshot in a prompt, bytes of JSON: the largest goal
/// ([`detent_protocol::GOAL_BYTES_MAX`]) and as much again for its amendments, the tools
/// and the steps.
pub const SNAPSHOT_BYTES_MAX: usize = 512 * 1024;

/// Cuts `snapshot` to at most `bytes_max` bytes of JSON.
///
/// Outputs of steps become `{"pruned_bytes": n, "digest": hex}`, the largest first.
/// Where that is not enough, whole steps go, the oldest first. `pruned` counts both.
/// Fails with [`Code::InputTooLarge`] when it does not fit without any step.
pub fn prune(mut snapshot: Snapshot, bytes_max: usize) -> Result<Snapshot, Fault> {
    let mut bytes = json_bytes(&snapshot)?;
    prune_outputs(&mut snapshot, &mut bytes, bytes_max);
    drop_oldest(&mut snapshot, &mut bytes, bytes_max)?;
    // `pruned` itself may have grown by some digits since it was measured.
    while json_bytes(&snapshot)? > bytes_max && !snapshot.steps.is_empty() {
        snapshot.steps.remove(0);
        snapshot.pruned = snapshot.pruned.saturating_add(1);
    }
    match json_bytes(&snapshot)? {
        n if n <= bytes_max => Ok(snapshot),
        n => Err(too_large(n, bytes_max)),
    }
}

fn too_large(bytes: usize, bytes_max: usize) -> Fault {
    let message = format!(
        "the goal with its tools and without any step is {bytes} bytes; \
         a planner takes {bytes_max}"
    );
    Fault::new(Code::InputTooLarge, message)
}

fn prune_outputs(snapshot: &mut Snapshot, bytes: &mut usize, bytes_max: usize) {
    if *bytes <= bytes_max {
        return;
    }
    let sizes = snapshot.steps.iter().enumerate();
    let mut sizes: Vec<_> = sizes.map(|(i, s)| (size_bytes(&s.output), i)).collect();
    sizes.sort_by_key(|&(n, i)| (Reverse(n), i));
    for (n, i) in sizes {
        if *bytes <= bytes_max {
            return;
        }
        let output = &mut snapshot.steps[i].output;
        let summary = summary(output, n);
        let after = size_bytes(&summary);
        // From here on a summary is no smaller than what it stands for.
        if after >= n {
            return;
        }
        *output = summary;
        *bytes -= n - after;
        snapshot.pruned = snapshot.pruned.saturating_add(1);
    }
}

fn summary(output: &Value, bytes: usize) -> Value {
    json!({"pruned_bytes": bytes, "digest": Digest::of_json(output)})
}

/// Removes as many of the oldest steps as it takes, in one go.
fn drop_oldest(snapshot: &mut Snapshot, bytes: &mut usize, bytes_max: usize) -> Result<(), Fault> {
    let mut gone = 0;
    for step in &snapshot.steps {
        if *bytes <= bytes_max {
            break;
        }
        // With the comma beside it; the last has none, and the caller measures again.
        *bytes = bytes.saturating_sub(json_bytes(step)? + 1);
        gone += 1;
    }
    snapshot.steps.drain(..gone);
    let gone = u32::try_from(gone).unwrap_or(u32::MAX);
    snapshot.pruned = snapshot.pruned.saturating_add(gone);
    Ok(())
}

struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0 += buf.len();
        Ok(buf.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn json_bytes(value: &impl Serialize) -> Result<usize, Fault> {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value)
        .map_err(|e| Fault::new(Code::InternalLogicError, format!("can't be written: {e}")))?;
    Ok(count.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::budget::Amount;
    use detent_protocol::goal::Amendment;
    use detent_protocol::messages::StepView;
    use detent_protocol::{AgentName, StepId, ToolName};
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseError;

    fn step(i: usize, output: Value) -> StepView {
        StepView {
            id: StepId::new(format!("step-{i}")).unwrap(),
            tool: ToolName::new("fetch").unwrap(),
            state: "done".into(),
            output,
            fault: None,
        }
    }

    fn snapshot(input: Value, steps: Vec<StepView>) -> Snapshot {
        Snapshot {
            agent: AgentName::new("report").unwrap(),
            description: "writes reports".into(),
            input: input.clone(),
            amendments: vec![Amendment {
                patch: json!({"product": "x"}),
                by: "somebody".into(),
            }],
            effective_input: input,
            result_schema: json!({"type": "object"}),
            tools: vec![],
            steps,
            violations: vec![],
            playbook: None,
            budget_left: Amount::default(),
            pruned: 0,
        }
    }

    #[test]
    fn a_thousand_large_steps_fit_and_the_goal_stays_whole() {
        let output = |i: usize| json!({"rows": format!("{i:05}").repeat(2_000)});
        let steps = (0..1000).map(|i| step(i, output(i))).collect();
        let before = snapshot(json!({"product": "w".repeat(5_000)}), steps);
        let after = prune(before.clone(), SNAPSHOT_BYTES_MAX).unwrap();
        assert!(json_bytes(&after).unwrap() <= SNAPSHOT_BYTES_MAX);
        assert_eq!(after.input, before.input);
        assert_eq!(after.amendments, before.amendments);
        assert_eq!(after.effective_input, before.effective_input);
        assert_eq!(after.steps.len(), 1000, "summaries are enough here");
        let cut = &after.steps[0].output;
        assert_eq!(
            cut["pruned_bytes"],
            json!(size_bytes(&before.steps[0].output))
        );
        assert_eq!(
            cut["digest"],
            json!(Digest::of_json(&before.steps[0].output))
        );
        assert!(after.pruned > 900, "{}", after.pruned);
    }

    #[test]
    fn what_fits_is_left_alone() {
        let before = snapshot(json!({"a": 1}), vec![step(0, json!("x".repeat(1000)))]);
        let size = json_bytes(&before).unwrap();
        assert_eq!(prune(before.clone(), size).unwrap(), before);
    }

    #[test]
    fn the_oldest_steps_go_when_summaries_are_not_enough() {
        let steps = (0..500).map(|i| step(i, json!(i))).collect();
        let before = snapshot(json!({"a": 1}), steps);
        let after = prune(before, 10_000).unwrap();
        assert!(json_bytes(&after).unwrap() <= 10_000);
        assert_eq!(after.steps.last().unwrap().id.as_str(), "step-499");
        assert_eq!(after.pruned as usize + after.steps.len(), 500);
        assert!(after.steps.len() > 50, "no more than needed");
    }

    #[test]
    fn a_goal_that_does_not_fit_alone_is_refused() {
        let before = snapshot(json!("x".repeat(50_000)), vec![step(0, json!(1))]);
        let fault = prune(before, 60_000).unwrap_err();
        assert_eq!(fault.code, Code::InputTooLarge);
    }

    /// Snapshots of up to 60 steps with outputs of some bytes to 8 KB.
    fn any_snapshot() -> impl Strategy<Value = Snapshot> {
        // Two letters, so that bytes and characters differ in some.
        let output = (0u32..13, 0usize..8, any::<bool>()).prop_map(|(log, more, wide)| {
            let text = if wide { "ü" } else { "a" };
            text.repeat((1 << log) + more)
        });
        let steps = proptest::collection::vec(output, 0..60);
        (steps, 0usize..2_000).prop_map(|(outputs, len)| {
            let steps = outputs.into_iter().enumerate();
            let steps = steps.map(|(i, o)| step(i, json!({ "t": o }))).collect();
            snapshot(json!({"i": "y".repeat(len)}), steps)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Size, wholeness, order and repeatability hold for whatever is cut.
        #[test]
        fn whatever_is_cut_the_goal_is_whole_and_it_fits(
            before in any_snapshot(),
            max in 500usize..80_000,
        ) {
            let Ok(after) = prune(before.clone(), max) else {
                let bare = Snapshot { steps: vec![], ..before };
                // At most the digits of `pruned` more than what is left without steps.
                prop_assert!(json_bytes(&bare).unwrap() + 10 > max, "refused what fits");
                return Ok(());
            };
            prop_assert!(json_bytes(&after).unwrap() <= max);
            prop_assert_eq!(&after.input, &before.input);
            prop_assert_eq!(&after.amendments, &before.amendments);
            prop_assert_eq!(&after.effective_input, &before.effective_input);
            prop_assert_eq!(&prune(before.clone(), max).unwrap(), &after);
            prop_assert_eq!(&prune(after.clone(), max).unwrap(), &after);
            largest_went_first(&before, &after)?;
        }
    }

    fn largest_went_first(before: &Snapshot, after: &Snapshot) -> Result<(), TestCaseError> {
        let gone = before.steps.len() - after.steps.len();
        let (mut kept, mut cut) = (0, usize::MAX);
        for (b, a) in before.steps[gone..].iter().zip(&after.steps) {
            prop_assert_eq!(&b.id, &a.id, "the newest stay, in their order");
            let size = size_bytes(&b.output);
            match a.output == b.output {
                true => kept = kept.max(size),
                false => cut = cut.min(size),
            }
        }
        prop_assert!(kept <= cut, "{} was kept, {} cut", kept, cut);
        prop_assert!(gone == 0 || kept < 200, "a step went before an output");
        Ok(())
    }
}
