//! One sample of every message, reply and record, and of each of their variants.

use detent_protocol::budget::{Amount, Limits};
use detent_protocol::claim::{Claim, Claimed};
use detent_protocol::effect::Effect;
use detent_protocol::expect::{Evidence, Observation, Verdict};
use detent_protocol::goal::{Amendment, IdempotencyKey, Submit};
use detent_protocol::json::Digest;
use detent_protocol::messages::*;
use detent_protocol::plan::Plan;
use detent_protocol::record::*;
use detent_protocol::result::*;
use detent_protocol::tombstone::{Archive, Tombstone};
use detent_protocol::*;
use serde_json::{Value, json};

pub(crate) fn tenant() -> TenantId {
    TenantId::default()
}
pub(crate) fn goal() -> GoalId {
    GoalId::from_bytes([7; 16])
}
pub(crate) fn agent() -> AgentName {
    AgentName::new("sales-report").unwrap()
}
pub(crate) fn step() -> StepId {
    StepId::new("fetch").unwrap()
}
pub(crate) fn tool() -> ToolName {
    ToolName::new("fetch-rows").unwrap()
}
pub(crate) fn node() -> NodeId {
    NodeId::new("n1").unwrap()
}
pub(crate) fn question_id() -> QuestionId {
    QuestionId::new("q-0123456789ab").unwrap()
}
pub(crate) fn digest() -> Digest {
    Digest([0xab; 32])
}
pub(crate) fn amount() -> Amount {
    Amount {
        plan_calls: 1,
        tokens: 32_768,
        tool_calls: 2,
        money_micros: 70_000,
    }
}
pub(crate) fn fault() -> Fault {
    Fault::new(Code::ToolFailed, "exit code 3: no such table")
        .at("fetch")
        .retry_after_ms(500)
}
pub(crate) fn run() -> RunFacts {
    RunFacts {
        wall_ms: 120,
        cpu_ms: 40,
        memory_bytes_max: 9_437_184,
        sandbox: "tree".into(),
        sandbox_missing: vec!["network".into()],
        node: "n1".into(),
    }
}
pub(crate) fn evidence() -> Evidence {
    Evidence {
        probe: "file".into(),
        what: "out/report.csv".into(),
        at_ms: 1_760_000_000_123,
        digest: digest(),
        seen: json!({"exists": true, "size": 17, "share": 0.25, "lost": null, "below": -4}),
    }
}
pub(crate) fn met() -> Observation {
    Observation {
        verdict: Verdict::Met,
        evidence: Some(evidence()),
        output: Some(json!({"id": 4})),
    }
}
pub(crate) fn seen(verdict: Verdict) -> Observation {
    Observation {
        verdict,
        evidence: None,
        output: None,
    }
}
pub(crate) fn question() -> Question {
    Question {
        id: question_id(),
        step: step(),
        what: "Did step fetch have its effect?".into(),
        choices: [CHOICE_HAPPENED, CHOICE_ABSENT, CHOICE_FAIL]
            .map(str::to_owned)
            .into(),
        digest: digest(),
        until_ms: 1_760_003_600_000,
    }
}
pub(crate) fn report() -> StepReport {
    StepReport {
        step: step(),
        tool: tool(),
        state: StepState::Unknown,
        attempts: 2,
        fault: Some(fault()),
    }
}
pub(crate) fn succeeded() -> GoalResult {
    let seen = StepEvidence {
        step: step(),
        tool: tool(),
        seen: vec![evidence()],
    };
    GoalResult::Succeeded {
        data: json!({"rows": 3}),
        evidence: vec![seen],
        stale: true,
    }
}
pub(crate) fn cancelled() -> GoalResult {
    let receipt = Receipt {
        by: "ann".into(),
        reason: "changed my mind".into(),
        steps: vec![report()],
        confirmed: vec![node()],
        unconfirmed: vec![NodeId::new("n2").unwrap()],
    };
    GoalResult::Cancelled { receipt }
}
pub(crate) fn plan() -> Plan {
    let plan = json!({
        "steps": [
            {"id": "fetch", "tool": "fetch-rows", "args": {"product": {"$goal": "/product"}}},
            {"id": "store", "tool": "store", "args": {"rows": {"$step": "fetch", "at": "/rows"}},
             "after": ["fetch"], "delay_seconds": 60, "repeat": true,
             "expect": [{"probe": "file", "params": {"path": {"$args": "/path"}},
                "schema": {"required": ["exists"]}, "absent": {"const": 0}, "output_at": "/out"}]}],
        "result": {"rows": {"$step": "fetch", "at": "/rows"}}});
    serde_json::from_value(plan).unwrap()
}
pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        agent: agent(),
        description: "Makes a sales report.".into(),
        input: json!({"product": "tea"}),
        amendments: vec![Amendment {
            patch: json!({"product": "coffee"}),
            by: "ann".into(),
        }],
        effective_input: json!({"product": "coffee"}),
        result_schema: json!({"type": "object"}),
        tools: vec![ToolView {
            name: tool(),
            description: "Fetches rows.".into(),
            effect: Effect::Read,
            input_schema: json!(true),
        }],
        steps: vec![step_view()],
        violations: vec![fault()],
        playbook: Some(json!({"steps": []})),
        budget_left: amount(),
        pruned: 1,
    }
}
pub(crate) fn step_view() -> StepView {
    StepView {
        id: step(),
        tool: tool(),
        state: "failed".into(),
        output: json!({"pruned_bytes": 20_000}),
        fault: Some(fault()),
    }
}
pub(crate) fn event() -> GoalEvent {
    GoalEvent {
        goal: goal(),
        n: 4,
        at_ms: 1_760_000_000_000,
        kind: "intended".into(),
        phase: Phase::Executing,
        step: Some(step()),
        text: "attempt 1 with fetch-rows".into(),
        detail: Value::Null,
    }
}
pub(crate) fn line() -> GoalLine {
    GoalLine {
        goal: goal(),
        agent: agent(),
        phase: Phase::Ended,
        status: Some("succeeded".into()),
        accepted_at_ms: 1_760_000_000_000,
        steps_done: 1,
        steps: 2,
        archived: false,
    }
}
/// What stays of that goal.
pub(crate) fn tombstone() -> Tombstone {
    Tombstone {
        agent: agent(),
        definition: digest(),
        submission: digest(),
        key: Some("order-17".into()),
        trace: None,
        json: false,
        owner: Some(node()),
        accepted_at_ms: 1_760_000_000_000,
        deadline_ms: 1_760_003_600_000,
        ended_at_ms: 1_760_000_060_000,
        result: succeeded(),
        steps_done: 1,
        steps: 2,
        archive: archive(),
    }
}
fn archive() -> Archive {
    Archive {
        parts: vec![digest()],
        entries: 9,
        bytes: 4096,
    }
}
pub(crate) fn forgotten_view() -> GoalView {
    GoalView {
        line: GoalLine {
            archived: true,
            ..line()
        },
        input: Value::Null,
        waiting: vec![],
        questions: vec![],
        steps: vec![],
        parked: None,
        archive: Some(archive()),
        ..view()
    }
}
pub(crate) fn view() -> GoalView {
    GoalView {
        line: line(),
        input: json!({"product": "tea"}),
        epoch: 2,
        owner: Some(node()),
        deadline_ms: 1_760_003_600_000,
        waiting: vec![WaitingFor {
            what: "tool".into(),
            step: Some(step()),
            since_ms: 1,
            until_ms: 2,
        }],
        questions: vec![question()],
        steps: vec![step_view()],
        result: Some(succeeded()),
        parked: Some(Fault::new(Code::JournalUnreadable, "of a newer version")),
        archive: None,
    }
}

/// On an output that is kept as a body.
pub(crate) fn claim() -> Claim {
    let rows = vec![json!({"product": "tea"}); 100];
    Claim::keep(&goal(), &json!({"count": 100, "rows": rows})).0
}

pub(crate) fn claimed() -> Claimed {
    let part = claim().find("/rows").unwrap().claims.remove(0).part;
    Claimed {
        at: "/rows".into(),
        part,
    }
}

pub(crate) fn submit() -> Submit {
    Submit {
        tenant: tenant(),
        agent: agent(),
        input: json!({"product": "tea", "from": "2026-02-01"}),
        key: Some(IdempotencyKey {
            key: "order-17".into(),
            issued_at_ms: 1_760_000_000_000,
        }),
        deadline_ms: Some(60_000),
        budget: Some(Limits {
            plan_calls: 3,
            tokens: 1_000,
            tool_calls: 9,
            money_micros: 5,
        }),
        trace: Some("0af7651916cd43dd8448eb211c80319c".into()),
    }
}

/// Calls `$f(name, &value)` for every message.
macro_rules! each_message {
    ($f:ident) => {
        let control = |verb| Control { tenant: tenant(), goal: goal(), by: "ann".into(), verb };
        let query = |ask| Query { tenant: tenant(), ask };
        $f("submit", &submit());
        $f("submit-least", &Submit { key: None, deadline_ms: None, budget: None, trace: None, ..submit() });
        $f("plan_request", &PlanRequest { tenant: tenant(), goal: goal(), revision: 2, snapshot: snapshot(), tokens_max: 32_768 });
        $f("tool_call", &ToolCall {
            tenant: tenant(), goal: goal(), step: step(), attempt: 1, epoch: 1, tool: tool(),
            tool_digest: digest(), args: json!({"product": "tea"}), identity: Some(digest()),
            claims: vec![], fencing_token: 5, start_within_ms: 10_000,
        });
        $f("tool_call-claims", &ToolCall {
            tenant: tenant(), goal: goal(), step: step(), attempt: 1, epoch: 1, tool: tool(),
            tool_digest: digest(), args: json!({"product": "tea", "rows": claimed().part.marker()}),
            claims: vec![claimed()], identity: None, fencing_token: 5, start_within_ms: 10_000,
        });
        $f("seal_attempt", &SealAttempt { tenant: tenant(), goal: goal(), step: step(), attempt: 1, epoch: 2 });
        $f("seal_goal", &SealGoal { tenant: tenant(), goal: goal() });
        $f("observe", &Observe {
            tenant: tenant(), goal: goal(), step: step(), probe: "file".into(), params: json!({"path": "a"}),
            claims: vec![], schema: json!(true), absent: Some(json!(false)), output_at: Some("/out".into()),
        });
        $f("observe-claims", &Observe {
            tenant: tenant(), goal: goal(), step: step(), probe: "output".into(),
            params: json!({"output": claimed().part.marker()}), claims: vec![claimed()],
            schema: json!(true), absent: None, output_at: None,
        });
        $f("control-cancel", &control(Verb::Cancel { reason: "changed my mind".into() }));
        $f("control-amend", &control(Verb::Amend { patch: json!({"product": null}) }));
        $f("control-answer", &control(Verb::Answer { question: question_id(), choice: CHOICE_ABSENT.into() }));
        $f("control-pause", &control(Verb::Pause));
        $f("control-resume", &control(Verb::Resume));
        $f("refused", &Refused { tenant: tenant(), name: "order-17".into(), fault: fault() });
        $f("alert", &Alert { node: node(), kind: "scan".into(), text: "the journal is away".into(), at_ms: 1_767_225_600_000 });
        $f("query-list", &query(Ask::List { open_only: true, after: Some(goal()), limit: 100 }));
        $f("query-show", &query(Ask::Show { goal: goal() }));
        $f("query-export", &query(Ask::Export { goal: goal(), from: 1 }));
        $f("query-events", &query(Ask::Events { goal: goal(), from: 1, wait_ms: 30_000 }));
        $f("event", &event());
        $f("result-succeeded", &ResultMessage { tenant: tenant(), agent: agent(), goal: goal(), result: succeeded() });
        $f("result-failed", &ResultMessage { tenant: tenant(), agent: agent(), goal: goal(), result: GoalResult::failed(&fault(), vec![report()]) });
        $f("result-cancelled", &ResultMessage { tenant: tenant(), agent: agent(), goal: goal(), result: cancelled() });
    };
}

/// Calls `$f(name, &value)` for every answer to a request, and for the slot's mark.
macro_rules! each_answer {
    ($f:ident) => {
        $f("accepted", &Accepted { goal: goal(), duplicate: true, result: Some(succeeded()) });
        $f("plan_answer", &PlanAnswer { plan: serde_json::to_value(plan()).unwrap(), tokens: 900, trusted: false });
        $f("tool_outcome-done", &ToolOutcome::Done { output: json!({"rows": [1]}), run: run() });
        $f("tool_outcome-claim", &ToolOutcome::Done { output: claim().to_output(), run: run() });
        $f("tool_outcome-failed", &ToolOutcome::Failed { fault: fault(), started: true, run: run() });
        $f("attempt_sealed", &AttemptSealed { seal: Seal::NeverStarted });
        $f("goal_sealed", &GoalSealed { node: node(), ended: 2 });
        $f("observation", &met());
        $f("controlled", &Controlled { phase: Phase::Planning });
        $f("answer-goals", &Answer::Goals { goals: vec![line()] });
        $f("answer-goal", &Answer::Goal { goal: Box::new(view()) });
        $f("answer-goal-forgotten", &Answer::Goal { goal: Box::new(forgotten_view()) });
        $f("answer-events", &Answer::Events { events: vec![event()], ended: true });
        $f("slot-started", &SlotMark::Started { node: node(), nonce: u64::MAX });
        $f("slot-revoked", &SlotMark::Revoked { epoch: 3 });
        $f("fault", &fault());
    };
}
pub(crate) use {each_answer, each_message};

/// Every kind of record, and every variant within.
pub(crate) fn records() -> Vec<(String, Body)> {
    let (id, tool, at) = (step(), tool(), 1_760_000_000_000);
    let asked = |why| Body::PlanRequested {
        revision: 1,
        provider: "big".into(),
        why,
        reserve: amount(),
    };
    let refused = |next| Body::PlanRefused {
        revision: 1,
        faults: vec![fault()],
        used: amount(),
        next,
    };
    let outcome = |outcome| Body::Outcome {
        step: step(),
        attempt: 1,
        outcome,
    };
    let sealing = |why| Body::Sealing {
        step: step(),
        attempt: 1,
        why,
    };
    let sealed = |seal| Body::Sealed {
        step: step(),
        attempt: 1,
        seal,
    };
    let waiting = |why| Body::Waiting {
        step: step(),
        until_ms: at,
        why,
    };
    let ended = |end| Body::StepEnded { step: step(), end };
    let done = || ToolOutcome::Done {
        output: json!({"rows": [1]}),
        run: run(),
    };
    let failed = || ToolOutcome::Failed {
        fault: fault(),
        started: false,
        run: run(),
    };
    let observed = |observations, proven_absent| Body::Observed {
        step: step(),
        attempt: 1,
        observations,
        proven_absent,
    };
    let bodies = vec![
        Body::Accepted {
            agent: agent(),
            definition: digest(),
            input: json!({"product": "tea"}),
            submission: digest(),
            key: Some("order-17".into()),
            deadline_ms: at,
            limits: Limits::default(),
            trace: None,
            json: false,
        },
        Body::Owned { node: node() },
        asked(PlanWhy::NewGoal),
        asked(PlanWhy::Again),
        asked(PlanWhy::Unavailable),
        asked(PlanWhy::StepFailed {
            step: step(),
            fault: fault(),
        }),
        asked(PlanWhy::Amended),
        asked(PlanWhy::Takeover),
        Body::Planned {
            revision: 1,
            plan: plan(),
            used: amount(),
        },
        refused(PlanNext::AskAgain),
        refused(PlanNext::Wait { until_ms: at }),
        refused(PlanNext::NextProvider),
        refused(PlanNext::GiveUp),
        Body::Intended {
            step: id.clone(),
            attempt: 1,
            tool: tool.clone(),
            args: digest(),
            identity: Some(digest()),
            reserve: amount(),
        },
        Body::Intended {
            step: id.clone(),
            attempt: 2,
            tool: tool.clone(),
            args: digest(),
            identity: None,
            reserve: amount(),
        },
        Body::Bound {
            step: id.clone(),
            to: StepId::new("store").unwrap(),
            identity: digest(),
        },
        Body::Inherited {
            step: id.clone(),
            from: StepId::new("store").unwrap(),
            identity: digest(),
            args: digest(),
        },
        outcome(done()),
        outcome(failed()),
        sealing(SealWhy::Takeover),
        sealing(SealWhy::Timeout),
        sealing(SealWhy::Closing),
        sealed(Seal::NeverStarted),
        sealed(Seal::Ended { outcome: None }),
        sealed(Seal::Ended {
            outcome: Some(done()),
        }),
        sealed(Seal::Ended {
            outcome: Some(failed()),
        }),
        Body::Looking {
            step: id.clone(),
            attempt: 1,
        },
        observed(vec![met()], false),
        observed(vec![seen(Verdict::Absent)], true),
        observed(
            vec![
                seen(Verdict::Mismatch {
                    why: "half of it".into(),
                }),
                seen(Verdict::Unavailable { fault: fault() }),
            ],
            false,
        ),
        waiting(WaitWhy::Delay),
        waiting(WaitWhy::Backoff),
        waiting(WaitWhy::Settle),
        waiting(WaitWhy::Probe),
        Body::FellBack {
            step: id,
            tool,
            fault: fault(),
        },
        ended(StepEnd::Done { stale: true }),
        ended(StepEnd::Failed { fault: fault() }),
        ended(StepEnd::Skipped),
        ended(StepEnd::Unknown { fault: fault() }),
        Body::Asked {
            question: question(),
        },
        Body::Answered {
            question: question_id(),
            choice: Some(CHOICE_HAPPENED.into()),
            by: "bob".into(),
        },
        Body::Answered {
            question: question_id(),
            choice: None,
            by: "nobody".into(),
        },
        Body::Amended {
            patch: json!({"product": "coffee"}),
            by: "ann".into(),
        },
        Body::Paused { by: "ann".into() },
        Body::Resumed { by: "ann".into() },
        Body::Closing {
            why: CloseWhy::Failed { fault: fault() },
        },
        Body::Closing {
            why: CloseWhy::Deadline,
        },
        Body::Closing {
            why: CloseWhy::Cancelled {
                by: "ann".into(),
                reason: "changed my mind".into(),
            },
        },
        Body::GoalSealed {
            confirmed: vec![node()],
            unconfirmed: vec![],
        },
        Body::Ended {
            result: succeeded(),
        },
        Body::Ended {
            result: GoalResult::failed(&fault(), vec![report()]),
        },
        Body::Ended {
            result: cancelled(),
        },
        Body::Forgotten {
            goal: Box::new(tombstone()),
        },
    ];
    let mut count = std::collections::BTreeMap::new();
    let bodies = bodies.into_iter().map(|body| {
        let n = count.entry(body.kind()).or_insert(0);
        *n += 1;
        (format!("{}-{n}", body.kind()), body)
    });
    bodies.collect()
}
