//! Builders and a driver for tests of the pure state machine: a definition, a state,
//! a journal and a clock that only moves when it is told to.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod events;
pub mod text;
pub mod world;

use detent_orchestrator::event::NewGoal;
use detent_orchestrator::state::Status;
use detent_orchestrator::{Bug, Command, Context, Decision, Event, GoalState, decide};
use detent_protocol::agent::{AgentDef, Compiled, Definition, ToolDef};
use detent_protocol::budget::Limits;
use detent_protocol::claim::{Claim, Claimed};
use detent_protocol::expect::{Evidence, Observation, Verdict};
use detent_protocol::journal::Entry;
use detent_protocol::json::Digest;
use detent_protocol::messages::{Phase, PlanAnswer};
use detent_protocol::record::{RunFacts, Seal, ToolOutcome};
use detent_protocol::result::GoalResult;
use detent_protocol::{Code, Fault, GoalId, NodeId, QuestionId, StepId, TenantId};
use serde_json::{Value, json};

/// When every test begins, Unix milliseconds.
pub const T0: u64 = 1_760_000_000_000;

// ---- definitions -----------------------------------------------------------

/// A tool of `effect`; `more` is merged over its entry.
pub fn tool(name: &str, effect: &str, more: Value) -> ToolDef {
    let mut def = json!({"name": name, "effect": effect, "kind": "process",
        "retry": {"attempts_max": 3, "backoff_ms": 200, "backoff_ms_max": 10_000}});
    detent_protocol::goal::merge_patch(&mut def, &more);
    serde_json::from_value(def).unwrap()
}

/// A probe that finds the effect from the arguments alone.
pub fn probe() -> Value {
    json!({"probe": "file", "params": {"path": {"$args": "/path"}},
        "schema": {"properties": {"exists": {"const": true}}, "required": ["exists"]}})
}

/// The tools of most tests: one of each effect, with and without what proves it.
pub fn all_tools() -> Vec<ToolDef> {
    vec![
        tool("get", "read", json!({})),
        tool("get-old", "read", json!({"stale": true})),
        tool("get-or-old", "read", json!({"fallback": "get-old"})),
        tool("put", "idempotent", json!({"probe": probe()})),
        tool("set", "fenced", json!({"probe": probe()})),
        tool(
            "pay",
            "once",
            json!({"probe": probe(), "settles_within_ms": 5000, "identity": ["/path"]}),
        ),
        tool("wire", "once", json!({"probe": probe()})),
        tool("mail", "once", json!({})),
        tool(
            "pay-or-wire",
            "once",
            json!({"probe": probe(), "settles_within_ms": 5000, "fallback": "wire"}),
        ),
    ]
}

/// An agent over `tools`; `more` is merged over its entry.
pub fn define(tools: Vec<ToolDef>, more: Value) -> Compiled {
    let names: Vec<_> = tools.iter().map(|t| t.name.as_str().to_owned()).collect();
    let mut agent = json!({"name": "shop", "tools": names,
        "input_schema": {"type": "object", "required": ["product"],
            "properties": {"product": {"type": "string"}}},
        "result_schema": {"type": "object"}});
    detent_protocol::goal::merge_patch(&mut agent, &more);
    let agent: AgentDef = serde_json::from_value(agent).unwrap();
    let tools = tools.into_iter().map(|t| (t.name.clone(), t)).collect();
    Compiled::compile(Definition { agent, tools }).unwrap()
}

/// The usual agent, with `more` merged over its entry.
pub fn shop(more: Value) -> Compiled {
    define(all_tools(), more)
}

/// A step that calls `tool` for `path`.
pub fn step(id: &str, tool: &str, path: &str) -> Value {
    json!({"id": id, "tool": tool, "args": {"path": path}})
}

/// The same after other steps.
pub fn step_after(id: &str, tool: &str, path: &str, after: &[&str]) -> Value {
    json!({"id": id, "tool": tool, "args": {"path": path}, "after": after})
}

/// A plan whose result is the output of its last step.
pub fn plan(steps: &[Value]) -> Value {
    let last = steps.last().unwrap()["id"].clone();
    json!({"steps": steps, "result": {"out": {"$step": last}}})
}

// ---- small things ----------------------------------------------------------

pub fn id(step: &str) -> StepId {
    StepId::new(step).unwrap()
}
pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}
pub fn fault(code: Code) -> Fault {
    Fault::new(code, format!("{code} as the test says"))
}
pub fn met() -> Verdict {
    Verdict::Met
}
pub fn mismatch() -> Verdict {
    Verdict::Mismatch {
        why: "half of it".into(),
    }
}
pub fn unavailable() -> Verdict {
    Verdict::Unavailable {
        fault: fault(Code::ObservationUnavailable),
    }
}
pub fn observation(verdict: Verdict, at_ms: u64) -> Observation {
    let looked = !matches!(verdict, Verdict::Unavailable { .. });
    let evidence = looked.then(|| Evidence {
        probe: "file".into(),
        what: "a file".into(),
        at_ms,
        digest: Digest([1; 32]),
        seen: json!({}),
    });
    Observation {
        verdict,
        evidence,
        output: None,
    }
}
pub fn ended_done(output: Value) -> Seal {
    let outcome = Some(ToolOutcome::Done {
        output,
        run: RunFacts::default(),
    });
    Seal::Ended { outcome }
}

/// On an output that is kept as a body: a small `count`, and `rows`.
pub fn claim(goal: &GoalId) -> Claim {
    Claim::keep(goal, &large()).0
}
pub fn large() -> Value {
    json!({"count": 400, "rows": vec![json!({"product": "tea"}); 400]})
}
/// The data of a result with what it lacks, from the body of [`claim`].
pub fn fetched(mut data: Value, claims: &[Claimed]) -> Value {
    for c in claims {
        let part = large().pointer(&c.part.pointer).cloned();
        *data.pointer_mut(&c.at).unwrap() = part.unwrap();
    }
    data
}

// ---- the driver ------------------------------------------------------------

/// A goal's owner without a shell: decides, appends, keeps what is out.
#[derive(Clone)]
pub struct Driver {
    pub definition: Compiled,
    pub state: GoalState,
    pub journal: Vec<Entry>,
    pub now_ms: u64,
    pub epoch: u64,
    pub node: NodeId,
    /// Commands whose event has not come.
    pub out: Vec<Command>,
    /// A planted mistake.
    pub bug: Option<Bug>,
    log: String,
}

impl Driver {
    /// A goal that nobody has submitted yet.
    pub fn fresh(definition: Compiled) -> Self {
        Self {
            state: empty_state(),
            definition,
            journal: Vec::new(),
            now_ms: T0,
            epoch: 1,
            node: node("n1"),
            out: Vec::new(),
            bug: None,
            log: String::new(),
        }
    }

    /// A goal that was just submitted.
    pub fn submitted(definition: Compiled) -> Self {
        let mut d = Self::fresh(definition);
        d.submit();
        d
    }

    /// A goal with its first plan taken; what led there is not in the log.
    pub fn planned(definition: Compiled, plan: Value) -> Self {
        let mut d = Self::submitted(definition);
        d.plan(plan);
        d
    }

    pub fn submit(&mut self) {
        let agent = self.definition.agent();
        let new = NewGoal {
            agent: agent.name.clone(),
            definition: self.definition.digest(),
            input: json!({"product": "tea"}),
            submission: Digest([9; 32]),
            key: None,
            deadline_ms: agent.deadline_ms,
            limits: agent.budget,
            trace: None,
            json: false,
        };
        self.on(Event::NewGoal(Box::new(new)));
    }

    pub fn limits(&self) -> Limits {
        self.state.budget.limits
    }

    /// One turn, with everything checked that holds after every turn.
    pub fn on(&mut self, event: Event) -> Decision {
        let cx = Context {
            definition: &self.definition,
            node: &self.node,
            epoch: self.epoch,
            now_ms: self.now_ms,
            bug: self.bug,
        };
        let decision = decide(&cx, &self.state, &event);
        self.check(&event, &decision);
        self.log
            .push_str(&text::turn(&event, &decision, &self.state, self.now_ms));
        if !decision.records.is_empty() {
            self.journal.push(Entry {
                tenant: self.state.tenant.clone(),
                goal: self.state.goal,
                epoch: self.epoch,
                at_ms: self.now_ms,
                at_error_ms: 50,
                records: decision.records.clone(),
            });
        }
        self.state = decision.next.clone();
        for command in &decision.commands {
            let asked_again = matches!(command, Command::SealGoal(_) | Command::FetchResult { .. });
            let again = asked_again && self.out.contains(command);
            if !again {
                self.out.push(command.clone());
            }
        }
        decision
    }

    fn check(&self, event: &Event, decision: &Decision) {
        let next = &decision.next;
        let name = event.name();
        let mut folded = self.state.clone();
        for record in &decision.records {
            folded.fold(self.epoch, self.now_ms, record);
        }
        assert_eq!(&folded, next, "{name}: next is not the fold of the records");
        let numbers = decision.records.iter().map(|r| r.n);
        assert!(numbers.eq(self.state.n + 1..=next.n), "{name}: numbers");
        assert_eq!(next.parked, self.state.parked, "{name}: parked");
        if decision.refused.is_some() {
            assert!(decision.records.is_empty(), "{name}: refused, with records");
            assert!(
                decision.commands.is_empty(),
                "{name}: refused, with commands"
            );
        }
        let between = next.steps.values().any(|s| s.status == Status::Between);
        assert!(!between, "{name}: a step was left between two records");
        assert_eq!(next.ended.is_some(), next.phase() == Phase::Ended);
        if next.agent.is_some() && next.ended.is_none() {
            assert!(
                !next.waiting().is_empty(),
                "{name}: waits for nothing (I15)"
            );
        }
    }

    /// What happened since the last call: events, `records` and `> commands`.
    pub fn log(&mut self) -> String {
        std::mem::take(&mut self.log)
    }

    /// The state as a replay of the journal gives it.
    pub fn replayed(&self) -> GoalState {
        let mut state = empty_state();
        self.journal.iter().for_each(|e| state.fold_entry(e));
        state
    }

    // ---- what happens ------------------------------------------------------

    fn answered(&mut self, is: impl Fn(&Command) -> bool) {
        if let Some(i) = self.out.iter().position(is) {
            self.out.remove(i);
        }
    }
    pub fn attempt(&self, step: &str) -> u32 {
        self.state.step(&id(step)).map_or(0, |s| s.attempts)
    }
    pub fn status(&self, step: &str) -> Status {
        self.state.step(&id(step)).unwrap().status.clone()
    }
    pub fn result(&self) -> GoalResult {
        self.state
            .ended
            .as_deref()
            .cloned()
            .expect("the goal has ended")
    }

    pub fn answer_plan(&mut self, plan: Value, trusted: bool, tokens: u64) {
        self.answered(|c| matches!(c, Command::Plan { .. }));
        let answer = PlanAnswer {
            plan,
            tokens,
            trusted,
        };
        self.on(Event::PlanReceived {
            revision: self.state.revision,
            answer,
        });
    }
    pub fn plan(&mut self, plan: Value) {
        self.answer_plan(plan, true, 0);
    }
    pub fn no_plan(&mut self, fault: Fault) {
        self.answered(|c| matches!(c, Command::Plan { .. }));
        self.on(Event::PlanFailed {
            revision: self.state.revision,
            fault,
        });
    }
    fn call_answered(&mut self, step: &str) -> (StepId, u32) {
        let step = id(step);
        self.answered(|c| matches!(c, Command::Call { call, .. } if call.step == step));
        let attempt = self.attempt(step.as_str());
        (step, attempt)
    }
    pub fn done(&mut self, step: &str, output: Value) {
        let (step, attempt) = self.call_answered(step);
        let run = RunFacts::default();
        self.on(Event::ToolCompleted {
            step,
            attempt,
            output,
            run,
        });
    }
    pub fn failed(&mut self, step: &str, code: Code, started: bool) {
        let (step, attempt) = self.call_answered(step);
        let (fault, run) = (fault(code), RunFacts::default());
        self.on(Event::ToolFailed {
            step,
            attempt,
            fault,
            started,
            run,
        });
    }
    pub fn silent(&mut self, step: &str) {
        let (step, attempt) = self.call_answered(step);
        self.on(Event::ToolSilent { step, attempt });
    }
    pub fn sealed(&mut self, step: &str, seal: Seal) {
        let (step, attempt) = (id(step), self.attempt(step));
        self.answered(|c| matches!(c, Command::Seal(s) if s.step == step));
        self.on(Event::AttemptSealed {
            step,
            attempt,
            seal,
        });
    }
    pub fn seal_failed(&mut self, step: &str) {
        let (step, attempt) = (id(step), self.attempt(step));
        self.answered(|c| matches!(c, Command::Seal(s) if s.step == step));
        let fault = fault(Code::NodeUnreachable);
        self.on(Event::SealFailed {
            step,
            attempt,
            fault,
        });
    }
    pub fn saw(&mut self, step: &str, verdicts: &[Verdict]) {
        let (step, attempt) = (id(step), self.attempt(step));
        self.answered(|c| matches!(c, Command::Look { step: s, .. } if *s == step));
        let seen = verdicts.iter().map(|v| observation(v.clone(), self.now_ms));
        let observations = seen.collect();
        self.on(Event::Observed {
            step,
            attempt,
            observations,
        });
    }
    /// The tool says it is done, and it is there.
    pub fn succeeds(&mut self, step: &str, output: Value) {
        self.done(step, output);
        if self.status(step) == Status::Looking {
            self.saw(step, &[met()]);
        }
    }
    /// Time passes; the goal is woken.
    pub fn after(&mut self, ms: u64) {
        self.now_ms += ms;
        self.on(Event::TimeCame);
    }
    /// Time passes until the goal wants to be woken.
    pub fn wake(&mut self) {
        let at = self.state.next_wake_ms().expect("it waits for a time");
        self.now_ms = self.now_ms.max(at);
        self.on(Event::TimeCame);
    }
    /// Another node takes over: state from the journal, and nothing is out.
    pub fn takeover(&mut self) {
        let replayed = self.replayed();
        assert_eq!(
            replayed, self.state,
            "the replay differs from what was decided (I10)"
        );
        self.state = replayed;
        self.out.clear();
        self.epoch += 1;
        self.node = node(&format!("n{}", self.epoch));
        self.on(Event::OwnerChanged {
            node: self.node.clone(),
        });
    }
    pub fn cancel(&mut self) {
        self.on(Event::Cancel {
            by: "ann".into(),
            reason: "changed my mind".into(),
        });
    }
    pub fn goal_sealed(&mut self) {
        self.answered(|c| matches!(c, Command::SealGoal(_)));
        let confirmed = vec![self.node.clone()];
        self.on(Event::GoalSealed {
            confirmed,
            unconfirmed: vec![],
        });
    }
    pub fn pause(&mut self) {
        self.on(Event::Pause { by: "ann".into() });
    }
    pub fn resume(&mut self) {
        self.on(Event::Resume { by: "ann".into() });
    }
    pub fn amend(&mut self, patch: Value) -> Option<Fault> {
        self.on(Event::Amend {
            patch,
            by: "ann".into(),
        })
        .refused
    }
    pub fn question(&self) -> QuestionId {
        self.state
            .questions
            .keys()
            .next()
            .expect("a person is asked")
            .clone()
    }
    pub fn answer(&mut self, choice: &str) -> Option<Fault> {
        let question = self.question();
        let (choice, by) = (choice.to_owned(), "bob".to_owned());
        self.on(Event::Answer {
            question,
            choice,
            by,
        })
        .refused
    }
}

pub fn empty_state() -> GoalState {
    GoalState::new(TenantId::default(), GoalId::from_bytes([7; 16]))
}
