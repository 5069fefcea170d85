//! One event of each kind, aimed at a state as well as it can be.

use super::*;
use detent_orchestrator::event::NewGoal;

fn new_goal(definition: &Compiled) -> Event {
    let agent = definition.agent();
    Event::NewGoal(Box::new(NewGoal {
        agent: agent.name.clone(),
        definition: definition.digest(),
        input: json!({"product": "tea"}),
        submission: Digest([9; 32]),
        key: None,
        deadline_ms: agent.deadline_ms,
        limits: agent.budget,
        trace: None,
        json: false,
    }))
}

/// Every kind of event, about a step that is there if there is one.
pub fn one_of_each(definition: &Compiled, state: &GoalState, pick: usize) -> Vec<Event> {
    let steps: Vec<_> = state.steps.iter().collect();
    let chosen = steps.get(pick % steps.len().max(1));
    let (step, attempt) = chosen.map_or((id("none"), 1), |(id, s)| ((*id).clone(), s.attempts));
    let (revision, run) = (state.revision, RunFacts::default());
    let by = "ann".to_owned();
    let question = state.questions.keys().next().cloned();
    let question = question.unwrap_or_else(|| QuestionId::new("q-none").unwrap());
    let answer = PlanAnswer {
        plan: json!({"steps": []}),
        tokens: 1,
        trusted: false,
    };
    let seen = vec![observation(Verdict::Absent, state.at_ms)];
    vec![
        new_goal(definition),
        Event::PlanReceived { revision, answer },
        Event::PlanFailed {
            revision,
            fault: fault(Code::ModelUnavailable),
        },
        Event::ToolCompleted {
            step: step.clone(),
            attempt,
            output: json!({}),
            run: run.clone(),
        },
        Event::ToolFailed {
            step: step.clone(),
            attempt,
            fault: fault(Code::ToolFailed),
            started: true,
            run,
        },
        Event::ToolSilent {
            step: step.clone(),
            attempt,
        },
        Event::AttemptSealed {
            step: step.clone(),
            attempt,
            seal: Seal::NeverStarted,
        },
        Event::SealFailed {
            step: step.clone(),
            attempt,
            fault: fault(Code::NodeUnreachable),
        },
        Event::Observed {
            step,
            attempt,
            observations: seen,
        },
        Event::TimeCame,
        Event::Cancel {
            by: by.clone(),
            reason: String::new(),
        },
        Event::Amend {
            patch: json!({"note": 1}),
            by: by.clone(),
        },
        Event::Answer {
            question,
            choice: "it-happened".into(),
            by: by.clone(),
        },
        Event::Pause { by: by.clone() },
        Event::Resume { by },
        Event::OwnerChanged { node: node("n9") },
        Event::ResultFetched {
            of: Digest([9; 32]),
            data: Ok(json!({})),
        },
        Event::GoalSealed {
            confirmed: vec![node("n1")],
            unconfirmed: vec![],
        },
    ]
}
