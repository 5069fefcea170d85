//! What a fenced append's failure means for the journal.
//!
//! Promises: "certainly not stored" is said only where JetStream refuses before it
//! proposes the message to the replicas; whatever it says after that, and whatever is
//! not listed here, is unknown.
//!
//! | JetStream | meaning |
//! |---|---|
//! | 10071 | the fence does not hold |
//! | 10164, 10163 | another append to this subject is on its way: again in a moment |
//! | 10077 for a limit, 10002, 10023, 10028, 10047, 10122 | full |
//! | 10054, 10097 | too large |
//! | 10060, 10109, 10111, 10165, 10166 | the stream is not as it has to be |
//! | 10158 | unknown: it needs a message id, which nothing here has |
//! | no responders, no leader, a timeout, all others | unknown |

use super::api::{Complaint, Failed, code};
use detent_protocol::{Code, Fault};

/// What a failure means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The leader, or who takes itself for it, holds another last sequence.
    Fenced,
    /// Nothing was decided: ask again in a moment.
    Busy,
    /// It may be stored.
    Unknown(Fault),
    /// It is certainly not stored.
    Refused(Fault),
}

/// Judges a failed append to `stream`, which holds at most `bytes_max` bytes.
pub(super) fn judge(failed: Failed, stream: &str, bytes_max: u64) -> Verdict {
    match failed {
        Failed::NotSent(fault) => Verdict::Refused(fault),
        Failed::Silent(why) => unknown(format!("{stream}: {why}")),
        Failed::Said(complaint) => judge_complaint(&complaint, stream, bytes_max),
    }
}

fn judge_complaint(complaint: &Complaint, stream: &str, bytes_max: u64) -> Verdict {
    let refused = |code, text| Verdict::Refused(Fault::new(code, text));
    match complaint.err_code {
        code::WRONG_LAST => Verdict::Fenced,
        code::WRONG_LAST_BUSY | code::WRONG_LAST_NOT_READY => Verdict::Busy,
        10077 if over_a_limit(complaint) => refused(Code::JournalStorage, full(stream, bytes_max)),
        10002 | 10023 | 10028 | 10047 | 10122 => {
            let text = format!("{stream}: {complaint}; the broker's limits have to be raised");
            refused(Code::JournalStorage, text)
        }
        10054 | 10097 => refused(Code::InputTooLarge, format!("{stream}: {complaint}")),
        10060 | 10109 | 10111 | 10165 | 10166 => {
            refused(Code::StreamSettings, format!("{stream}: {complaint}"))
        }
        _ => unknown(format!("{stream}: {complaint}")),
    }
}

/// The same code is said for a disk that failed in the middle of a write.
fn over_a_limit(complaint: &Complaint) -> bool {
    let limits = ["maximum bytes exceeded", "maximum messages exceeded"];
    limits.contains(&complaint.description.as_str())
}

fn full(stream: &str, bytes_max: u64) -> String {
    format!("{stream} is full: it may hold {bytes_max} bytes (`nats.journal_bytes_max`)")
}

fn unknown(text: String) -> Verdict {
    Verdict::Unknown(Fault::new(Code::JournalUnknown, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(err_code: u64, description: &str) -> Verdict {
        let complaint = Complaint {
            code: 400,
            err_code,
            description: description.into(),
        };
        judge(Failed::Said(complaint), "S", 1000)
    }

    fn refused(verdict: Verdict) -> Code {
        match verdict {
            Verdict::Refused(fault) => fault.code,
            other => panic!("{other:?}"),
        }
    }

    fn is_unknown(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Unknown(fault) if fault.code == Code::JournalUnknown)
    }

    #[test]
    fn a_wrong_fence_is_told_from_a_busy_subject() {
        assert_eq!(said(10071, "wrong last sequence: 9"), Verdict::Fenced);
        assert_eq!(said(10164, "wrong last sequence"), Verdict::Busy);
        assert_eq!(said(10163, "temporarily unavailable"), Verdict::Busy);
    }

    #[test]
    fn a_full_stream_refuses_and_says_its_limit() {
        let Verdict::Refused(fault) = said(10077, "maximum bytes exceeded") else {
            panic!("not refused");
        };
        assert_eq!(fault.code, Code::JournalStorage);
        assert!(fault.code.retryable());
        assert!(fault.message.contains("1000 bytes"), "{}", fault.message);
        for limit in [10002, 10023, 10028, 10047, 10122] {
            assert_eq!(refused(said(limit, "no")), Code::JournalStorage, "{limit}");
        }
        // A disk that failed may have taken it.
        assert!(is_unknown(said(10077, "no space left on device")));
    }

    #[test]
    fn what_can_never_be_stored_is_refused() {
        assert_eq!(refused(said(10054, "too large")), Code::InputTooLarge);
        assert_eq!(refused(said(10097, "headers")), Code::InputTooLarge);
        for settings in [10060, 10109, 10111, 10165, 10166] {
            assert_eq!(refused(said(settings, "no")), Code::StreamSettings);
        }
    }

    #[test]
    fn everything_else_proves_nothing() {
        for unclear in [0, 10008, 10009, 10039, 10059, 10076, 10158, 10167, 19999] {
            assert!(is_unknown(said(unclear, "?")), "{unclear}");
        }
        let silent = judge(Failed::Silent("no responders".into()), "S", 1);
        assert!(is_unknown(silent));
        let fault = Fault::new(Code::BrokerUnreachable, "no connection");
        let not_sent = judge(Failed::NotSent(fault.clone()), "S", 1);
        assert_eq!(not_sent, Verdict::Refused(fault));
    }
}
