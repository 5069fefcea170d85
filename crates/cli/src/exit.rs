//! Exit codes. They are public API.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | it was done; a goal that was waited for succeeded |
//! | 1 | the goal failed |
//! | 2 | the command line is wrong |
//! | 3 | refused: input, configuration, or a request that can't be carried out |
//! | 4 | not now: nobody answers, overloaded, locked; the same may work later |
//! | 5 | the goal was cancelled |
//! | 6 | damage: a corrupt journal, a full disk, or a bug |
//! | 130 | interrupted; goals that had not ended go on with the next start |

use detent_protocol::Code;
use detent_protocol::result::GoalResult;

pub(crate) const OK: u8 = 0;
pub(crate) const GOAL_FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const REFUSED: u8 = 3;
pub(crate) const NOT_NOW: u8 = 4;
pub(crate) const CANCELLED: u8 = 5;
pub(crate) const INTERNAL: u8 = 6;
pub(crate) const INTERRUPTED: u8 = 130;

/// Exit code of a fault.
pub(crate) fn of_code(code: Code) -> u8 {
    match code {
        Code::JournalCorrupt
        | Code::JournalStorage
        | Code::JournalUnreadable
        | Code::InternalLogicError => INTERNAL,
        Code::NodeUnreachable | Code::DataDirLocked | Code::PortTaken | Code::NodeNameTaken => {
            NOT_NOW
        }
        code if code.retryable() => NOT_NOW,
        _ => REFUSED,
    }
}

/// Exit code of a goal's result.
pub(crate) fn of_result(result: &GoalResult) -> u8 {
    match result {
        GoalResult::Succeeded { .. } => OK,
        GoalResult::Failed { .. } => GOAL_FAILED,
        GoalResult::Cancelled { .. } => CANCELLED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_code_of_the_table() {
        for code in Code::ALL {
            assert!(
                [REFUSED, NOT_NOW, INTERNAL].contains(&of_code(*code)),
                "{code}"
            );
        }
    }
}
