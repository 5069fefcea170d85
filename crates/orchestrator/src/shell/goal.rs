//! The actor of one goal: its only writer.

use super::append::{Appended, append, legible};
use super::carry::carry;
use super::intake::RETRY_AFTER_MS;
use super::{Active, CallOut, Shared, Transition, kinds, load, reason};
use crate::command::Command;
use crate::decide::{Bug, Context, Decision, decide};
use crate::event::Event;
use crate::state::GoalState;
use crate::{TURN_MS_MAX, view};
use detent_bus::GoalKey;
use detent_protocol::agent::{Compiled, Definition};
use detent_protocol::envelope::{seal, seal_json};
use detent_protocol::journal::Entry;
use detent_protocol::json::Digest;
use detent_protocol::messages::{Controlled, Verb};
use detent_protocol::record::{Body, Said};
use detent_protocol::result::ResultMessage;
use detent_protocol::{Code, Fault, subject};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

/// What a goal's actor is told.
pub(crate) enum GoalMsg {
    /// Something happened, at this moment; to a tool call that counts as out.
    Event(Event, Instant, Option<CallOut>),
    /// Somebody wants something.
    Control {
        verb: Verb,
        by: String,
        reply: oneshot::Sender<Result<Controlled, Fault>>,
        /// Its place in the bounded queue.
        place: OwnedSemaphorePermit,
    },
    /// Read the journal and go on from there.
    Recover,
    /// Carry out what was decided when the goal was taken.
    Begin(Vec<Command>),
    /// Fail, for the test that shows what then happens.
    Panic,
}

/// How an actor starts.
pub(crate) enum Start {
    /// With a goal that was just taken.
    New {
        state: Box<GoalState>,
        seq: u64,
        hash: Digest,
        definition: Compiled,
        commands: Vec<Command>,
    },
    /// From the journal.
    Recover,
}

pub(crate) struct Arguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: GoalKey,
    pub(crate) start: Start,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

pub(crate) struct GoalActor;

/// The actor's state: the goal's and what is out for it.
pub(crate) struct Working {
    shared: Arc<Shared>,
    key: GoalKey,
    goal: GoalState,
    seq: u64,
    hash: Digest,
    epoch: u64,
    definition: Option<Compiled>,
    /// Why it has none, though its journal is whole.
    orphan: Option<Fault>,
    timer: Option<(u64, JoinHandle<()>)>,
    out: Vec<JoinHandle<()>>,
    sealing_goal: bool,
    fetching: bool,
    progress: watch::Sender<u64>,
}

impl Drop for Working {
    /// What is out belongs to this actor: its answers would find nobody.
    fn drop(&mut self) {
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        for task in self.out.drain(..) {
            task.abort();
        }
    }
}

impl Actor for GoalActor {
    type Msg = GoalMsg;
    type State = Working;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        me: ActorRef<GoalMsg>,
        args: Arguments,
    ) -> Result<Working, ActorProcessingErr> {
        let (goal, seq, hash, definition, first) = match args.start {
            Start::New {
                state,
                seq,
                hash,
                definition,
                commands,
            } => (
                *state,
                seq,
                hash,
                Some(definition),
                GoalMsg::Begin(commands),
            ),
            Start::Recover => {
                let goal = GoalState::new(args.key.tenant.clone(), args.key.goal);
                let genesis = detent_protocol::journal::GENESIS;
                (goal, 0, genesis, None, GoalMsg::Recover)
            }
        };
        let (progress, seen) = watch::channel(goal.n);
        let active = Active {
            actor: me.clone(),
            progress: seen,
            controls: Arc::new(Semaphore::new(args.shared.options.controls_max)),
            permit: args.permit,
            failures: 0,
        };
        args.shared.register(&args.key, active);
        me.cast(first)?;
        Ok(Working {
            epoch: goal.epoch,
            shared: args.shared,
            key: args.key,
            goal,
            seq,
            hash,
            definition,
            orphan: None,
            timer: None,
            out: Vec::new(),
            sealing_goal: false,
            fetching: false,
            progress,
        })
    }

    async fn handle(
        &self,
        me: ActorRef<GoalMsg>,
        msg: GoalMsg,
        w: &mut Working,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            GoalMsg::Event(event, at, out) => {
                w.sealing_goal &= !matches!(event, Event::GoalSealed { .. });
                w.fetching &= !matches!(event, Event::ResultFetched { .. });
                if matches!(event, Event::TimeCame) {
                    // It has rung. Where a clock went back in between, nothing is due
                    // yet and it has to be set again for the same time.
                    w.timer = None;
                }
                w.turn(&me, &event, at).await;
                // Only now is a tool's outcome in the journal: a stop waits for it.
                drop(out);
            }
            GoalMsg::Control {
                verb,
                by,
                reply,
                place,
            } => {
                let answer = w.control(&me, verb, by).await;
                drop(place);
                // Whoever asked may have gone.
                let _ = reply.send(answer);
            }
            GoalMsg::Recover => w.recover(&me).await?,
            GoalMsg::Begin(commands) => {
                // A goal without any budget ends with its first entry.
                if w.goal.ended.is_some() {
                    w.tell_result(w.goal.at_ms).await;
                }
                w.after_turn(&me, commands);
            }
            GoalMsg::Panic => panic!("asked to fail"),
        }
        Ok(())
    }
}

impl Working {
    /// One turn: decide, append, install, act. Gives why a control was refused.
    async fn turn(
        &mut self,
        me: &ActorRef<GoalMsg>,
        event: &Event,
        arrived: Instant,
    ) -> Option<Fault> {
        if let Some(orphan) = self.orphan.clone() {
            return self.orphan_turn(me, event, orphan).await;
        }
        let Some(definition) = self.definition.clone() else {
            return self.goal.parked.clone();
        };
        let began = Instant::now();
        let cx = Context {
            definition: &definition,
            node: &self.shared.options.node,
            epoch: self.epoch,
            now_ms: self.shared.env.now_ms(),
            bug: self.shared.options.bug,
        };
        let decision = decide(&cx, &self.goal, event);
        let now_ms = cx.now_ms;
        if let Some(fault) = decision.refused {
            return Some(fault);
        }
        if let (Some(broken), None) = (&decision.next.parked, &self.goal.parked) {
            // A rule of ours made a record that does not fit: not written, not done.
            let text = format!("goal {}: {}: {broken}", self.key.goal, event.name());
            self.shared.hooks.alert("invariant", &text);
            return Some(Fault::new(Code::InternalLogicError, text));
        }
        if decision.records.is_empty() {
            self.after_turn(me, decision.commands);
            return None;
        }
        self.commit(me, event, decision, now_ms, (arrived, began))
            .await
    }

    /// A goal without its definition waits for it until somebody cancels it or its
    /// deadline passes. Closing needs no definition: what runs is sealed, and effects
    /// that can't be looked up are named unknown.
    async fn orphan_turn(
        &mut self,
        me: &ActorRef<GoalMsg>,
        event: &Event,
        orphan: Fault,
    ) -> Option<Fault> {
        let late = self.shared.env.now_ms() >= self.goal.deadline_ms;
        match event {
            Event::Cancel { .. } => {}
            Event::TimeCame if late => {}
            _ => return Some(orphan),
        }
        self.definition = match nobody() {
            Ok(definition) => Some(definition),
            Err(fault) => return Some(fault),
        };
        self.orphan = None;
        let refused = Box::pin(self.turn(me, event, Instant::now())).await;
        let node = self.shared.options.node.clone();
        let owned = Event::OwnerChanged { node };
        if self.goal.ended.is_none() {
            Box::pin(self.turn(me, &owned, Instant::now())).await;
        }
        refused
    }

    /// Gives why nothing was committed.
    async fn commit(
        &mut self,
        me: &ActorRef<GoalMsg>,
        event: &Event,
        decision: Decision,
        now_ms: u64,
        (arrived, began): (Instant, Instant),
    ) -> Option<Fault> {
        let entry = Entry {
            tenant: self.key.tenant.clone(),
            goal: self.key.goal,
            epoch: self.epoch,
            at_ms: now_ms,
            at_error_ms: self.shared.env.clock_error_ms(),
            records: decision.records,
        };
        let encoded = entry.encode(&self.hash);
        let encoded = encoded.and_then(|(bytes, hash)| legible(&bytes).map(|()| (bytes, hash)));
        let (bytes, hash) = match encoded {
            Ok(encoded) => encoded,
            Err(fault) => {
                let text = format!("goal {}: {}: {fault}", self.key.goal, event.name());
                self.shared.hooks.alert("invariant", &text);
                return self.not_written(me, event, fault).await;
            }
        };
        let turn = began.elapsed();
        if self.shared.options.bug == Some(Bug::DispatchBeforeIntent) {
            self.carry_out(me, decision.commands.clone());
        }
        let ends = decision.next.ended.is_some();
        match append(&self.shared, &self.key, self.seq, &bytes, ends).await {
            Appended::Yes(seq) => self.seq = seq,
            Appended::Fenced => {
                self.step_down(me);
                let fault = Fault::new(Code::OwnerFenced, Code::OwnerFenced.what());
                return Some(fault.retry_after_ms(RETRY_AFTER_MS));
            }
            Appended::Refused(fault) => return self.not_written(me, event, fault).await,
        }
        self.hash = hash;
        self.goal = decision.next;
        self.tell(&entry, event, arrived.elapsed(), turn).await;
        let commands = match self.shared.options.bug {
            Some(Bug::DispatchBeforeIntent) => Vec::new(),
            _ => decision.commands,
        };
        self.after_turn(me, commands);
        None
    }

    /// What was decided can't be in the journal, now or later, so it never happened. The
    /// goal must not wait for it for ever: it is closed for that reason. Gives the reason.
    async fn not_written(
        &mut self,
        me: &ActorRef<GoalMsg>,
        event: &Event,
        fault: Fault,
    ) -> Option<Fault> {
        if matches!(event, Event::AppendRefused { .. }) {
            // Not even that: an operator has to look. The next scan takes it up again.
            let text = format!("goal {}: it can't be closed: {fault}", self.key.goal);
            self.shared.hooks.alert("journal", &text);
            self.shared.unregister(&self.key, &me.get_cell());
            me.stop(None);
            return Some(fault);
        }
        tracing::error!(goal = %self.key.goal, event = event.name(), %fault, "can't be journaled");
        let refused = Event::AppendRefused {
            fault: fault.clone(),
        };
        // Boxed: a turn that commits ends up here again, once.
        Box::pin(self.turn(me, &refused, Instant::now())).await;
        Some(fault)
    }

    fn after_turn(&mut self, me: &ActorRef<GoalMsg>, commands: Vec<Command>) {
        if self.goal.ended.is_some() {
            self.shared.unregister(&self.key, &me.get_cell());
            self.shared.retire(&self.key, self.goal.at_ms);
            return me.stop(None);
        }
        self.carry_out(me, commands);
    }

    /// Lets commands out. Only ever called with the records that intend them
    /// confirmed.
    fn carry_out(&mut self, me: &ActorRef<GoalMsg>, commands: Vec<Command>) {
        self.out.retain(|task| !task.is_finished());
        for command in commands {
            // Counted before the look at `is_draining`, or a stop could miss it.
            let calls = matches!(command, Command::Call { .. });
            let out = calls.then(|| self.shared.call_started());
            match &command {
                // The next owner, or this node after its restart, seals it: it never
                // started.
                Command::Call { .. } if self.shared.is_draining() => continue,
                Command::SealGoal(_) if std::mem::replace(&mut self.sealing_goal, true) => continue,
                Command::FetchResult { .. } if std::mem::replace(&mut self.fetching, true) => {
                    continue;
                }
                _ => {}
            }
            self.out.push(carry(&self.shared, me, command, out));
        }
        self.arm(me);
    }

    /// Sets the one timer to the next moment at which time alone changes something.
    fn arm(&mut self, me: &ActorRef<GoalMsg>) {
        let wake = match self.orphan {
            Some(_) => Some(self.goal.deadline_ms),
            None => self.goal.next_wake_ms(),
        };
        if self.timer.as_ref().map(|(at, _)| *at) == wake {
            return;
        }
        if let Some((_, old)) = self.timer.take() {
            old.abort();
        }
        let Some(at) = wake else { return };
        let wait = Duration::from_millis(at.saturating_sub(self.shared.env.now_ms()));
        let me = me.clone();
        let timer = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = me.cast(GoalMsg::Event(Event::TimeCame, Instant::now(), None));
        });
        self.timer = Some((at, timer));
    }

    /// Views of what was confirmed: audit, followers, results, questions, alerts.
    async fn tell(&self, entry: &Entry, event: &Event, duration: Duration, turn: Duration) {
        let shared = &self.shared;
        if turn.as_millis() > u128::from(TURN_MS_MAX) {
            let text = format!("goal {}: {} took {turn:?}", self.key.goal, event.name());
            shared.hooks.alert("slow-turn", &text);
        }
        shared.hooks.transition(Transition {
            tenant: self.key.tenant.clone(),
            goal: self.key.goal,
            epoch: self.epoch,
            n: self.goal.n,
            phase: self.goal.phase(),
            event: event.name(),
            records: kinds(&entry.records),
            duration,
            turn,
            reason: reason(&entry.records),
        });
        if shared.options.publish_events {
            for record in &entry.records {
                let event = view::event(&self.goal, entry.at_ms, record);
                let subject = subject::event(&self.key.tenant, &self.key.goal);
                self.publish(&subject, &event).await;
            }
        }
        for record in &entry.records {
            if let Said::Known(Body::Asked { .. }) = &record.said {
                let event = view::event(&self.goal, entry.at_ms, record);
                let subject = subject::ask(&self.key.tenant, &self.key.goal);
                self.publish(&subject, &event).await;
            }
        }
        if self.goal.ended.is_some() {
            self.tell_result(entry.at_ms).await;
        }
        // The view was told; followers that wait may read.
        self.progress.send_replace(self.goal.n);
    }

    async fn tell_result(&self, at_ms: u64) {
        let (Some(result), Some(agent)) = (&self.goal.ended, &self.goal.agent) else {
            return;
        };
        let took = Duration::from_millis(at_ms.saturating_sub(self.goal.accepted_at_ms));
        self.shared.hooks.ended(result, took);
        if let detent_protocol::result::GoalResult::Failed {
            error_code: Code::InternalLogicError,
            message,
            ..
        } = result.as_ref()
        {
            let text = format!("goal {}: {message}", self.key.goal);
            self.shared.hooks.alert("internal-logic-error", &text);
        }
        let message = ResultMessage {
            tenant: self.key.tenant.clone(),
            agent: agent.clone(),
            goal: self.key.goal,
            result: result.as_ref().clone(),
        };
        let subject = subject::result(&self.key.tenant, agent, &self.key.goal);
        self.publish(&subject, &message).await;
    }

    async fn publish<T: detent_protocol::envelope::Message>(&self, subject: &str, message: &T) {
        let sealed = match self.goal.json {
            true => seal_json(message),
            false => seal(message),
        };
        let Ok(payload) = sealed else { return };
        // A view that nobody gets can be read from the journal at any time.
        if let Err(error) = self.shared.bus.messages.publish(subject, payload).await {
            tracing::debug!(%subject, %error, "not published");
        }
    }

    /// Another owner has the goal: nothing more goes out from here.
    fn step_down(&mut self, me: &ActorRef<GoalMsg>) {
        tracing::warn!(goal = %self.key.goal, code = %Code::OwnerFenced, "stepping down");
        self.shared.unregister(&self.key, &me.get_cell());
        me.stop(None);
    }

    async fn recover(&mut self, me: &ActorRef<GoalMsg>) -> Result<(), ActorProcessingErr> {
        let loaded = match load(&*self.shared.bus.journal, &self.key).await {
            Ok(Some(loaded)) => loaded,
            Ok(None) => {
                self.step_down(me);
                return Ok(());
            }
            // Not to be had just now: the supervisor tries again.
            Err(fault) if !matches!(fault.code, Code::JournalCorrupt | Code::JournalUnreadable) => {
                return Err(fault.to_string().into());
            }
            Err(fault) => {
                // Nothing is dispatched from a journal that does not hold.
                let text = format!("goal {}: {fault}", self.key.goal);
                self.shared.hooks.alert("journal", &text);
                self.goal.parked = Some(fault);
                return Ok(());
            }
        };
        self.goal = loaded.state;
        self.seq = loaded.seq;
        self.hash = loaded.hash;
        self.epoch = self.goal.epoch + 1;
        if self.goal.ended.is_some() {
            self.step_down(me);
            return Ok(());
        }
        if let Some(parked) = &self.goal.parked {
            let text = format!("goal {}: {parked}", self.key.goal);
            self.shared.hooks.alert("journal", &text);
            return Ok(());
        }
        let pinned = self.goal.definition.as_ref();
        let pinned = pinned
            .and_then(|d| self.shared.definitions.pinned(d))
            .cloned();
        let Some(definition) = pinned else {
            let fault = Fault::new(Code::ReplayMismatch, Code::ReplayMismatch.what());
            let text = format!("goal {}: {fault}", self.key.goal);
            self.shared.hooks.alert("replay-mismatch", &text);
            self.orphan = Some(fault);
            self.arm(me);
            return Ok(());
        };
        self.definition = Some(definition);
        let node = self.shared.options.node.clone();
        self.turn(me, &Event::OwnerChanged { node }, Instant::now())
            .await;
        Ok(())
    }

    async fn control(
        &mut self,
        me: &ActorRef<GoalMsg>,
        verb: Verb,
        by: String,
    ) -> Result<Controlled, Fault> {
        let event = match verb {
            Verb::Cancel { reason } => Event::Cancel { by, reason },
            Verb::Amend { patch } => Event::Amend { patch, by },
            Verb::Answer { question, choice } => Event::Answer {
                question,
                choice,
                by,
            },
            Verb::Pause => Event::Pause { by },
            Verb::Resume => Event::Resume { by },
        };
        match self.turn(me, &event, Instant::now()).await {
            Some(fault) => Err(fault),
            None => Ok(Controlled {
                phase: self.goal.phase(),
            }),
        }
    }
}

/// A definition without tools, to close a goal by whose own is lost.
fn nobody() -> Result<Compiled, Fault> {
    let agent = serde_json::json!({"name": "nobody", "tools": [],
        "input_schema": true, "result_schema": true});
    let agent = serde_json::from_value(agent)
        .map_err(|e| Fault::new(Code::InternalLogicError, e.to_string()))?;
    let tools = std::collections::BTreeMap::new();
    Compiled::compile(Definition { agent, tools })
}
