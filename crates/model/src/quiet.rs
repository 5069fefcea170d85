//! No more faults: does everything then end?

use crate::action::Action;
use crate::model::Protocol;
use crate::state::State;

/// Steps within which a quiet run has to end.
const STEPS_MAX: usize = 4_000;

/// What an action that is no fault and no wish leads to, where it makes a difference.
pub(crate) fn is_free(m: &Protocol, s: &State, action: Action) -> Option<State> {
    if matches!(action, Action::BackUp | Action::Mishap) {
        return None;
    }
    m.after(s, action).filter(|next| next.budget == s.budget)
}

/// Does the goal end from here without further faults? Some run has to: what comes in
/// which order is not up to the goal, but no order of these steps can make another
/// impossible for ever, or the run below would show it in the state it leads to.
pub(crate) fn ends(m: &Protocol, s: &State) -> bool {
    let mut stack = vec![*s];
    let mut seen = std::collections::HashSet::new();
    let mut actions = Vec::new();
    while let Some(state) = stack.pop() {
        if !state.journal.is_open() {
            return true;
        }
        if !seen.insert(state) {
            continue;
        }
        if seen.len() > STEPS_MAX {
            return false;
        }
        m.all_actions(&state, &mut actions);
        stack.extend(actions.drain(..).filter_map(|a| is_free(m, &state, a)));
    }
    false
}
