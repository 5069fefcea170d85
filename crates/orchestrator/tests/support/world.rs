//! A world in which tools have effects, late or not at all, and a walk through what can
//! happen to a goal: every choice comes from a list of numbers, and when the list is
//! used up everything is kind.
//!
//! The world knows the truth, so it can count what a goal really did.

use super::*;
use detent_protocol::messages::ToolCall;
use detent_protocol::record::{CHOICE_ABSENT, CHOICE_FAIL, CHOICE_HAPPENED};
use std::collections::BTreeMap;

/// How long bytes may be on their way after their sender's end, milliseconds.
pub const SETTLES_MS: u64 = 5_000;

/// One attempt as the world saw it.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub call: ToolCall,
    pub started: bool,
    /// When its effect takes place, if ever.
    pub lands_at_ms: Option<u64>,
}

/// Choices in the order in which they are made; kind (0) when used up.
pub struct Choices {
    left: std::vec::IntoIter<u16>,
    pub kind: bool,
}

impl Choices {
    pub fn new(all: Vec<u16>) -> Self {
        Self {
            left: all.into_iter(),
            kind: false,
        }
    }
    /// One of these.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.pick(all.len())]
    }
    /// One of `0..n`.
    pub fn pick(&mut self, n: usize) -> usize {
        match self.left.next() {
            Some(c) => usize::from(c) % n,
            None => {
                self.kind = true;
                0
            }
        }
    }
}

pub struct Walk {
    pub d: Driver,
    pub choices: Choices,
    pub attempts: BTreeMap<(StepId, u32), Attempt>,
    history: Vec<Event>,
    plans: u32,
}

/// A place that never looks as expected.
pub const NEVER: &str = "/never";

pub const TOOLS: [&str; 7] = [
    "get",
    "put",
    "set",
    "pay",
    "wire",
    "get-or-old",
    "pay-or-wire",
];

impl Drop for Walk {
    /// With `DETENT_WALK_LOG` set, a walk that fails says all that happened in it.
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("DETENT_WALK_LOG").is_some() {
            eprintln!("{}", self.d.log());
        }
    }
}

impl Walk {
    pub fn new(choices: Vec<u16>) -> Self {
        let mut choices = Choices::new(choices);
        let agent = json!({
            "reasoners": ["big", "playbook"],
            "deadline_ms": *choices.one_of(&[86_400_000, 86_400_000, 86_400_000, 30_000]),
            "policy": {"parallel_max": 1 + choices.pick(3), "replans_max": choices.one_of(&[2, 0, 9, 9]), "ask_ms": 600_000},
            "budget": {"tokens": *choices.one_of(&[2_000_000, 200_000, 2_000_000, 40_000]), "plan_calls": *choices.one_of(&[100, 100, 100, 3]),
                "tool_calls": *choices.one_of(&[1000, 1000, 1000, 6])},
        });
        Self {
            d: Driver::submitted(shop(agent)),
            choices,
            attempts: BTreeMap::new(),
            history: Vec::new(),
            plans: 0,
        }
    }

    /// Something happens.
    pub fn step(&mut self) -> Decision {
        let what = if self.choices.kind {
            0
        } else {
            self.choices.pick(16)
        };
        match what {
            _ if self.d.state.paused.is_some() && self.choices.pick(4) == 0 => {
                self.d.on(Event::Resume { by: "ann".into() })
            }
            9 => self.control(),
            10 => {
                let jumps = [
                    100, 2_000, 5_000, 5_000, 60_000, 60_000, 600_000, 40_000_000,
                ];
                self.d.now_ms += self.choices.one_of(&jumps);
                self.d.on(Event::TimeCame)
            }
            11 => self.take_over(),
            12 | 13 if !self.history.is_empty() => {
                let i = self.choices.pick(self.history.len());
                let again = self.history[i].clone();
                if self.answers_what_is_out(&again) {
                    self.go_on()
                } else {
                    self.d.on(again)
                }
            }
            14 => self.d.on(Event::TimeCame),
            _ => self.go_on(),
        }
    }

    /// An answer comes, or time passes to where the goal wants to be woken.
    fn go_on(&mut self) -> Decision {
        if self.choices.kind && self.d.state.paused.is_some() {
            return self.d.on(Event::Resume { by: "ann".into() });
        }
        if !self.d.out.is_empty() {
            let i = self.choices.pick(self.d.out.len());
            let command = self.d.out.remove(i);
            let event = self.carry_out(command);
            self.history.push(event.clone());
            return self.d.on(event);
        }
        if !self.d.state.questions.is_empty() && (self.choices.kind || self.choices.pick(2) == 0) {
            return self.answer_truly();
        }
        match self.d.state.next_wake_ms() {
            Some(at) => {
                self.d.now_ms = self.d.now_ms.max(at);
                self.d.on(Event::TimeCame)
            }
            None => {
                assert!(
                    self.d.state.paused.is_some(),
                    "nothing will ever wake it (I15)"
                );
                self.d.on(Event::Resume { by: "ann".into() })
            }
        }
    }

    /// The shell gives one event for each command, so a repeated answer to what is out
    /// now can't come.
    fn answers_what_is_out(&self, event: &Event) -> bool {
        self.d.out.iter().any(|c| match (c, event) {
            (
                Command::Plan { request, .. },
                Event::PlanReceived { revision, .. } | Event::PlanFailed { revision, .. },
            ) => request.revision == *revision,
            (
                Command::Look { step, attempt, .. },
                Event::Observed {
                    step: s,
                    attempt: a,
                    ..
                },
            ) => (step, attempt) == (s, a),
            (
                Command::Seal(c),
                Event::AttemptSealed { step, attempt, .. }
                | Event::SealFailed { step, attempt, .. },
            ) => (&c.step, c.attempt) == (step, *attempt),
            (Command::FetchResult { .. }, Event::ResultFetched { .. })
            | (Command::SealGoal(_), Event::GoalSealed { .. }) => true,
            _ => false,
        })
    }

    fn control(&mut self) -> Decision {
        let by = "ann".to_owned();
        let event = match self.choices.pick(12) {
            0 | 1 => Event::Pause { by },
            2 | 3 => Event::Resume { by },
            4 if self.choices.pick(3) == 0 => Event::Cancel {
                by,
                reason: "changed my mind".into(),
            },
            5 | 7 | 8 => Event::Amend {
                patch: json!({"product": "coffee"}),
                by,
            },
            6 => Event::Amend {
                patch: json!({"product": 7}),
                by,
            },
            _ if !self.d.state.questions.is_empty() => return self.answer_truly(),
            _ => Event::Answer {
                question: QuestionId::new("q-none").unwrap(),
                choice: "x".into(),
                by,
            },
        };
        self.d.on(event)
    }

    /// State from the journal, by way of its bytes; what was out is lost, but a call
    /// may have arrived.
    fn take_over(&mut self) -> Decision {
        for command in std::mem::take(&mut self.d.out) {
            if let Command::Call { call, .. } = command
                && self.choices.pick(2) == 0
            {
                self.arrives(&call, true);
            }
        }
        self.d.state = self.d.replayed();
        self.d.epoch += 1;
        self.d.node = node(&format!("n{}", self.d.epoch));
        let node = self.d.node.clone();
        self.d.on(Event::OwnerChanged { node })
    }

    // ---- the world ---------------------------------------------------------

    /// A call reaches its executor. Whether and when it has its effect is chosen now.
    fn arrives(&mut self, call: &ToolCall, may_be_late: bool) -> bool {
        let late = if may_be_late {
            self.choices.pick(SETTLES_MS as usize) as u64
        } else {
            0
        };
        let happens = self.choices.pick(4) != 3;
        let lands_at_ms = happens.then_some(self.d.now_ms + late);
        let attempt = Attempt {
            call: call.clone(),
            started: true,
            lands_at_ms,
        };
        self.attempts
            .insert((call.step.clone(), call.attempt), attempt);
        happens
    }

    /// Effects of `tool` on `path` that have taken place.
    fn is_there(&self, path: &Value, at_ms: u64) -> bool {
        self.attempts.values().any(|a| {
            a.call.identity.is_some()
                && a.call.args["path"] == *path
                && a.lands_at_ms.is_some_and(|t| t <= at_ms)
        })
    }

    fn carry_out(&mut self, command: Command) -> Event {
        match command {
            Command::Plan { provider, request } => self.make_plan(&provider, request.revision),
            Command::Call { call, .. } => self.run(&call),
            Command::Seal(seal) => self.seal(seal.step, seal.attempt),
            Command::Look {
                step,
                attempt,
                checks,
            } => {
                let seen = checks.iter().map(|c| {
                    let verdict = match self.choices.pick(8) {
                        _ if c.params["path"] == NEVER => mismatch(),
                        7 => unavailable(),
                        6 => mismatch(),
                        _ if self.is_there(&c.params["path"], self.d.now_ms) => met(),
                        _ => Verdict::Absent,
                    };
                    observation(verdict, self.d.now_ms)
                });
                Event::Observed {
                    step,
                    attempt,
                    observations: seen.collect(),
                }
            }
            Command::FetchResult { data, claims, .. } => {
                let of = Digest::of_json(&data);
                let data = match self.choices.pick(8) {
                    7 => Err(fault(Code::ToolUnavailable)),
                    6 => Ok(json!("no object")),
                    _ => Ok(fetched(data, &claims)),
                };
                Event::ResultFetched { of, data }
            }
            Command::SealGoal(_) => Event::GoalSealed {
                confirmed: vec![self.d.node.clone()],
                unconfirmed: vec![],
            },
        }
    }

    fn run(&mut self, call: &ToolCall) -> Event {
        let (step, attempt, run) = (call.step.clone(), call.attempt, RunFacts::default());
        self.d.now_ms += 10;
        match self.choices.pick(8) {
            5 => {
                let fault = fault(Code::ToolUnavailable);
                Event::ToolFailed {
                    step,
                    attempt,
                    fault,
                    started: false,
                    run,
                }
            }
            6 => {
                self.arrives(call, true);
                let codes = [Code::ToolFailed, Code::ToolCrashed, Code::SandboxViolation];
                let fault = fault(codes[self.choices.pick(3)]);
                Event::ToolFailed {
                    step,
                    attempt,
                    fault,
                    started: true,
                    run,
                }
            }
            7 => {
                if self.choices.pick(2) == 0 {
                    self.arrives(call, true);
                }
                Event::ToolSilent { step, attempt }
            }
            _ => {
                // A tool may also lie.
                self.arrives(call, false);
                let output = match self.choices.pick(3) {
                    2 => claim(&call.goal).to_output(),
                    _ => json!({"ok": true}),
                };
                Event::ToolCompleted {
                    step,
                    attempt,
                    output,
                    run,
                }
            }
        }
    }

    fn seal(&mut self, step: StepId, attempt: u32) -> Event {
        if self.choices.pick(12) == 11 {
            return Event::SealFailed {
                step,
                attempt,
                fault: fault(Code::NodeUnreachable),
            };
        }
        let seal = match self.attempts.get_mut(&(step.clone(), attempt)) {
            None => Seal::NeverStarted,
            Some(a) => {
                // What was sent before the end may still arrive for a while.
                a.lands_at_ms = a.lands_at_ms.map(|t| t.min(self.d.now_ms + SETTLES_MS - 1));
                match self.choices.pick(2) {
                    0 => Seal::Ended { outcome: None },
                    _ => ended_done(json!({"ok": true})),
                }
            }
        };
        Event::AttemptSealed {
            step,
            attempt,
            seal,
        }
    }

    /// A person who looks carefully, and who waits until nothing can arrive any more.
    fn answer_truly(&mut self) -> Decision {
        let (question, asked) = self.d.state.questions.iter().next().unwrap();
        let (question, step) = (question.clone(), asked.step.clone());
        let (revoked, path) = {
            let s = self.d.state.step(&step).unwrap();
            let started = self.attempts.contains_key(&(step.clone(), s.attempts));
            let path = match &s.step.args["path"] {
                Value::String(path) => path.clone(),
                of_goal => {
                    let product = s.input["product"].as_str().unwrap();
                    format!("/{}{product}", of_goal["$concat"][1].as_str().unwrap())
                }
            };
            (!started && s.attempts > 0, json!(path))
        };
        if revoked {
            // It was not sealed, and must not start after the person has looked.
            let attempts = self.d.attempt(step.as_str());
            self.d.out.retain(|c| !matches!(c, Command::Call { call, .. } if call.step == step && call.attempt == attempts));
        }
        let choice = match (self.choices.pick(5), self.is_there(&path, u64::MAX)) {
            (4, _) => CHOICE_FAIL,
            (_, true) => CHOICE_HAPPENED,
            (_, false) => CHOICE_ABSENT,
        };
        let (choice, by) = (choice.to_owned(), "bob".to_owned());
        self.d.on(Event::Answer {
            question,
            choice,
            by,
        })
    }

    fn make_plan(&mut self, provider: &str, revision: u32) -> Event {
        self.plans += 1;
        let mut trusted = provider == "playbook";
        let tokens = if trusted { 0 } else { 1_000 };
        let plan = match self.choices.pick(10) {
            6 => json!("no plan"),
            7 => json!({"done": true}),
            8 => plan(&[step(&format!("p{}", self.plans), "teleport", "x")]),
            9 => {
                let fault = fault(Code::ModelUnavailable).retry_after_ms(500);
                return Event::PlanFailed { revision, fault };
            }
            _ => {
                // What a model may not plan has tests of its own; here anything may
                // be planned.
                trusted = true;
                self.good_plan()
            }
        };
        Event::PlanReceived {
            revision,
            answer: PlanAnswer {
                plan,
                tokens,
                trusted,
            },
        }
    }

    fn good_plan(&mut self) -> Value {
        let name = |plans: u32, i: usize| format!("p{plans}s{i}");
        let count = 1 + self.choices.pick(4);
        let steps: Vec<_> = (0..count)
            .map(|i| {
                let tool = TOOLS[self.choices.pick(TOOLS.len())];
                // Few places, so that plans meet one another's effects; each place has
                // one tool, so that what is there is that tool's.
                let path = format!("/{tool}{}", self.choices.pick(2));
                let mut s = step(&name(self.plans, i), tool, &path);
                if i > 0 && self.choices.pick(2) == 1 {
                    s["after"] = json!([name(self.plans, self.choices.pick(i))]);
                }
                match self.choices.pick(16) {
                    11 | 12 => {
                        s["args"] = json!({"path": {"$concat": ["/", tool, {"$goal": "/product"}]}})
                    }
                    13 | 14 => {
                        let mut never = probe();
                        never["params"]["path"] = json!(NEVER);
                        s["expect"] = json!([never]);
                    }
                    15 => s["delay_seconds"] = json!(3),
                    _ => {}
                }
                s
            })
            .collect();
        // What a step's output was may be lost, so the result rests on goal and step.
        json!({"steps": steps, "result": {"out": {"$step": name(self.plans, count - 1)}}})
    }
}
