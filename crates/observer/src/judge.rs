//! Compares what was seen with what was expected. Pure.

use crate::probe::Look;
use detent_protocol::Code;
use detent_protocol::contract::{self, Contract};
use detent_protocol::expect::Verdict;

/// The contracts of one expectation.
pub(crate) struct Expected {
    /// There and right.
    pub(crate) met: Contract,
    /// Proven absent, if that can be proven.
    pub(crate) absent: Option<Contract>,
}

impl Expected {
    /// The verdict. What is expected goes before what proves absence: an expectation may
    /// be that something is gone.
    pub(crate) fn judge(&self, look: &Look) -> Verdict {
        let Err(violations) = self.met.check(&look.seen) else {
            return Verdict::Met;
        };
        if self.absent.as_ref().is_some_and(|a| a.accepts(&look.seen)) {
            return Verdict::Absent;
        }
        if let Some(fault) = &look.doubt {
            let fault = fault.clone();
            return Verdict::Unavailable { fault };
        }
        let why = contract::fault_of(Code::ObservationRejected, &violations).message;
        Verdict::Mismatch { why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::unavailable;
    use detent_protocol::expect::absent_schema;
    use serde_json::{Value, json};

    fn expected(schema: Value, absent: Option<Value>) -> Expected {
        let compile = |schema: &Value| Contract::compile(schema).unwrap();
        Expected {
            met: compile(&schema),
            absent: absent.as_ref().map(compile),
        }
    }

    fn is(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Met => "met",
            Verdict::Absent => "absent",
            Verdict::Mismatch { .. } => "mismatch",
            Verdict::Unavailable { .. } => "unavailable",
        }
    }

    #[test]
    fn the_table_of_verdicts() {
        let one = json!({"properties": {"row_count": {"const": 1}}, "required": ["row_count"]});
        let none = json!({"properties": {"row_count": {"const": 0}}, "required": ["row_count"]});
        let sql = || absent_schema("sql");
        let doubt = || Some(unavailable("503"));
        for (schema, absent, seen, doubt, verdict) in [
            (&one, sql(), json!({"row_count": 1}), None, "met"),
            (&one, sql(), json!({"row_count": 0}), None, "absent"),
            (&one, sql(), json!({"row_count": 2}), None, "mismatch"),
            (&one, None, json!({"row_count": 0}), None, "mismatch"),
            // Expected to be gone: that is met, not absent.
            (&none, sql(), json!({"row_count": 0}), None, "met"),
            // A doubt counts only where nothing else is said.
            (&one, sql(), json!({"row_count": 1}), doubt(), "met"),
            (&one, sql(), json!({"row_count": 0}), doubt(), "absent"),
            (&one, sql(), json!({"row_count": 2}), doubt(), "unavailable"),
        ] {
            let mut look = Look::new("", seen.clone());
            look.doubt = doubt;
            let found = expected(schema.clone(), absent).judge(&look);
            assert_eq!(is(&found), verdict, "{seen}");
        }
    }

    #[test]
    fn a_mismatch_names_place_and_rule_but_no_value() {
        let schema = json!({"properties": {"text": {"maxLength": 3}}});
        let look = Look::new("", json!({"text": "hunter2-secret"}));
        let Verdict::Mismatch { why } = expected(schema, None).judge(&look) else {
            panic!("no mismatch");
        };
        assert!(
            why.contains("/text") && why.contains("maxLength 3"),
            "{why}"
        );
        assert!(!why.contains("hunter2"), "{why}");
    }
}
