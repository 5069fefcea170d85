//! Publishers and the people behind them: seeded, impatient, and truthful.
//!
//! What it promises: it keeps what it was told, and nothing else, for the judge. It
//! answers a question only with what is true in the world, or never.

use crate::bus::{Fabric, Port, lock};
use crate::chance::Chance;
use crate::judge::{Submission, ToldControl, ToldEvents, ToldResult};
use crate::life::Life;
use crate::workload::AGENTS;
use crate::world::{Truth, World};
use detent_bus::{Event, GoalKey, Messages, call};
use detent_protocol::envelope::{self, Message};
use detent_protocol::goal::{Accepted, IdempotencyKey, Submit};
use detent_protocol::messages::{Answer, Ask, Control, Controlled, GoalView, Query, Verb};
use detent_protocol::record::{CHOICE_ABSENT, CHOICE_FAIL, CHOICE_HAPPENED, Question};
use detent_protocol::result::ResultMessage;
use detent_protocol::{AgentName, Code, Fault, GoalId, NodeId, TenantId, ToolName, subject};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a publisher waits for an answer.
const PATIENCE: Duration = Duration::from_secs(12);

/// What all publishers of a run were told.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) submissions: Vec<Submission>,
    pub(crate) results: Vec<ToldResult>,
    pub(crate) controls: Vec<ToldControl>,
    pub(crate) events: Vec<ToldEvents>,
}

/// The publishers of a run.
#[derive(Clone)]
pub(crate) struct Publishers {
    port: Port,
    world: Arc<World>,
    told: Arc<Mutex<Told>>,
    /// Goals are forgotten soon after their end.
    forgetful: bool,
}

/// What one publisher will do, beside submitting.
struct Mood {
    /// Ticks after which it cancels.
    cancel_at: Option<u64>,
    /// Ticks after which it amends.
    amend_at: Option<u64>,
    /// Ticks after which it pauses, and for how many.
    pause: Option<(u64, u64)>,
    /// Does it answer questions?
    answers: bool,
    /// Ticks after which it submits again.
    again_at: Option<u64>,
}

impl Publishers {
    pub(crate) fn new(fabric: Arc<Fabric>, world: Arc<World>, forgetful: bool) -> Option<Self> {
        let life = Life::outside(NodeId::new("publishers").ok()?);
        Some(Self {
            port: Port::new(fabric, Arc::new(life)),
            world,
            told: Arc::default(),
            forgetful,
        })
    }

    pub(crate) fn take(&self) -> Told {
        std::mem::take(&mut *lock(&self.told))
    }

    fn chance(&self) -> &Chance {
        &self.port.fabric.chance
    }

    fn say(&self, text: impl AsRef<str>) {
        self.port.fabric.trace.say(text);
    }

    /// Keeps every result that is published.
    pub(crate) async fn hear_results(self) {
        let subscribed = self.port.subscribe("detent.*.result.*.*", 1024).await;
        let Ok(mut results) = subscribed else { return };
        while let Some(event) = results.next().await {
            let Event::Message { payload, .. } = event else {
                continue;
            };
            if let Ok(message) = envelope::expect::<ResultMessage>(&payload) {
                let key = GoalKey {
                    tenant: message.tenant,
                    goal: message.goal,
                };
                let open = lock(&self.port.fabric.journal).open().any(|k| *k == key);
                lock(&self.told).results.push(ToldResult {
                    goal: message.goal,
                    result: message.result,
                    was_journaled: Some(!open),
                });
            }
        }
    }

    /// One publisher with one goal, from its submission to its end.
    pub(crate) async fn publish(self, number: u64, within_ms: u64) {
        let chance = self.chance();
        let wait = chance.below(within_ms);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let submit = self.submission(number);
        let mood = self.mood();
        // Two at once with one key: only one goal may come of it.
        if submit.key.is_some() && self.chance().happens(150) {
            let (twin, same) = (self.clone(), submit.clone());
            tokio::spawn(async move { twin.submit(&same).await });
        }
        let Some(accepted) = self.submit_until_taken(&submit).await else {
            return self.say(format!("publisher {number} gave up"));
        };
        self.follow(accepted.goal, &submit, &mood).await;
    }

    fn submission(&self, number: u64) -> Submit {
        let chance = self.chance();
        // The names of the agents are valid.
        #[allow(clippy::expect_used)]
        let agent = AgentName::new(AGENTS[chance.below(AGENTS.len() as u64) as usize])
            .expect("an agent's name");
        let items: Vec<_> = (0..chance.between(1, 4))
            .map(|n| json!({"name": format!("part-{n}")}))
            .collect();
        let key = chance.happens(700).then(|| IdempotencyKey {
            key: format!("key-{number}"),
            issued_at_ms: crate::env::EPOCH_MS + self.port.fabric.trace.elapsed_us() / 1000,
        });
        Submit {
            tenant: TenantId::default(),
            agent,
            input: json!({"item": format!("item-{number}"), "amount": 1, "items": items}),
            key,
            deadline_ms: None,
            budget: None,
            trace: None,
        }
    }

    fn mood(&self) -> Mood {
        let chance = self.chance();
        let tick = |per_mille| chance.happens(per_mille).then(|| chance.below(12));
        Mood {
            cancel_at: tick(200),
            amend_at: tick(250),
            pause: tick(150).map(|at| (at, chance.between(1, 8))),
            answers: chance.happens(750),
            again_at: tick(300),
        }
    }

    /// Asks and keeps the answer. `None`: there was none.
    async fn submit(&self, submit: &Submit) -> Result<Accepted, Fault> {
        let subject = subject::submit(&submit.tenant, &submit.agent);
        let answer = self.ask::<_, Accepted>(&subject, submit).await;
        let text = match &answer {
            Ok(a) => format!("told: accepted {} (duplicate: {})", a.goal, a.duplicate),
            Err(fault) => format!("told: {fault}"),
        };
        self.say(text);
        lock(&self.told).submissions.push(Submission {
            key: submit.key.as_ref().map(|k| k.key.clone()),
            body: submit.body_digest(),
            answer: answer.clone(),
        });
        answer
    }

    /// Tries until it is taken; with a key the answer to a lost answer is the same goal.
    async fn submit_until_taken(&self, submit: &Submit) -> Option<Accepted> {
        for _ in 0..40 {
            match self.submit(submit).await {
                Ok(accepted) => return Some(accepted),
                Err(fault) if !fault.code.retryable() => return None,
                Err(_) => {}
            }
            let wait = self.chance().between(300, 4_000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        None
    }

    /// Looks at the goal every few seconds and does what the mood says, until it ends.
    async fn follow(&self, goal: GoalId, submit: &Submit, mood: &Mood) {
        for tick in 0.. {
            let wait = self.chance().between(500, 4_000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            self.act(goal, submit, mood, tick).await;
            let Some(view) = self.show(goal).await else {
                continue;
            };
            if let Some(result) = view.result {
                lock(&self.told).results.push(ToldResult {
                    goal,
                    result,
                    was_journaled: None,
                });
                break;
            }
            if mood.answers {
                for question in &view.questions {
                    let step = view.steps.iter().find(|s| s.id == question.step);
                    if let Some(step) = step {
                        self.answer(goal, &step.tool, question).await;
                    }
                }
            }
        }
        if submit.key.is_some() && self.chance().happens(300) {
            // Its result comes with the answer.
            let _ = self.submit(submit).await;
        }
        if self.forgetful {
            self.come_back(goal, submit).await;
        }
    }

    /// Asks after a goal that has ended while it is being forgotten, and after that.
    async fn come_back(&self, goal: GoalId, submit: &Submit) {
        for _ in 0..self.chance().between(1, 4) {
            let wait = self.chance().between(0, 6_000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            match self.chance().below(4) {
                0 | 1 if submit.key.is_some() => drop(self.submit(submit).await),
                2 if submit.key.is_some() => {
                    let mut other = submit.clone();
                    other.input["item"] = json!("another");
                    drop(self.submit(&other).await);
                }
                3 => {
                    let reason = "too late".to_owned();
                    self.control(goal, Verb::Cancel { reason }).await;
                }
                _ => self.hear_again(goal).await,
            }
        }
    }

    /// All events from the first on.
    async fn hear_again(&self, goal: GoalId) {
        let mut numbers = Vec::new();
        loop {
            let query = Query {
                tenant: TenantId::default(),
                ask: Ask::Events {
                    goal,
                    from: numbers.last().map_or(1, |n| n + 1),
                    wait_ms: 100,
                },
            };
            let subject = subject::query(&query.tenant);
            match self.ask::<_, Answer>(&subject, &query).await {
                Ok(Answer::Events { events, ended }) => {
                    numbers.extend(events.iter().map(|e| e.n));
                    if ended {
                        break;
                    }
                }
                Ok(_) => return,
                Err(fault) => return self.say(format!("events of {goal}: {fault}")),
            }
        }
        self.say(format!("events of {goal}: {}", numbers.len()));
        lock(&self.told).events.push(ToldEvents { goal, numbers });
    }

    async fn act(&self, goal: GoalId, submit: &Submit, mood: &Mood, tick: u64) {
        let due = |at: Option<u64>| at == Some(tick);
        if due(mood.again_at) && submit.key.is_some() {
            let mut again = submit.clone();
            if self.chance().happens(500) {
                again.input["item"] = json!("another");
            }
            let _ = self.submit(&again).await;
        }
        if due(mood.amend_at) {
            let patch = match self.chance().below(3) {
                // Of no effect on any step; another amount; another thing.
                0 => json!({"memo": tick}),
                1 => json!({"amount": 2}),
                _ => json!({"item": format!("other-{tick}")}),
            };
            self.control(goal, Verb::Amend { patch }).await;
        }
        if let Some((at, ticks)) = mood.pause {
            if at == tick {
                self.control(goal, Verb::Pause).await;
            }
            if at + ticks == tick {
                self.control(goal, Verb::Resume).await;
            }
        }
        if due(mood.cancel_at) {
            let reason = "changed my mind".to_owned();
            self.control(goal, Verb::Cancel { reason }).await;
        }
    }

    /// Goes and looks, then answers what is true.
    async fn answer(&self, goal: GoalId, tool: &ToolName, question: &Question) {
        let choice = match self.world.truth(goal, tool, &question.digest) {
            Truth::Undecided => return,
            _ if self.chance().happens(50) => CHOICE_FAIL,
            Truth::Happened => CHOICE_HAPPENED,
            Truth::Absent => CHOICE_ABSENT,
        };
        let verb = Verb::Answer {
            question: question.id.clone(),
            choice: choice.to_owned(),
        };
        self.control(goal, verb).await;
    }

    async fn control(&self, goal: GoalId, verb: Verb) {
        let control = Control {
            tenant: TenantId::default(),
            goal,
            by: "publisher".into(),
            verb: verb.clone(),
        };
        let subject = subject::steer(&control.tenant, &goal);
        let answer = self.ask::<_, Controlled>(&subject, &control).await;
        self.say(format!("control {goal} {verb:?}: {answer:?}"));
        if answer.is_ok() {
            lock(&self.told).controls.push(ToldControl {
                goal,
                by: control.by,
                verb,
            });
        }
    }

    async fn show(&self, goal: GoalId) -> Option<GoalView> {
        let query = Query {
            tenant: TenantId::default(),
            ask: Ask::Show { goal },
        };
        let subject = subject::query(&query.tenant);
        match self.ask::<_, Answer>(&subject, &query).await {
            Ok(Answer::Goal { goal }) => Some(*goal),
            Err(fault) if fault.code == Code::GoalUnknown => {
                self.say(format!("goal {goal} is not known"));
                None
            }
            _ => None,
        }
    }

    async fn ask<Q: Message, A: serde::de::DeserializeOwned>(
        &self,
        subject: &str,
        question: &Q,
    ) -> Result<A, Fault> {
        call(&self.port, subject, question, PATIENCE).await
    }
}
