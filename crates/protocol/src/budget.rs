//! Budgets: reserved before they are spent (invariant I9).

use serde::{Deserialize, Serialize};

/// What a goal may use. All are totals over the goal's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Calls of a planner.
    pub plan_calls: u32,
    /// Tokens, in and out, of all planner calls.
    pub tokens: u64,
    /// Attempts of tools.
    pub tool_calls: u32,
    /// Money, in millionths of the currency that the tools' `cost_micros` are in.
    pub money_micros: u64,
}

impl Default for Limits {
    /// 12 plan calls, 200,000 tokens, 1,000 tool calls, no money.
    fn default() -> Self {
        Self {
            plan_calls: 12,
            tokens: 200_000,
            tool_calls: 1_000,
            money_micros: 0,
        }
    }
}

impl Limits {
    /// The smaller of both in every part: a goal may lower its agent's limits only.
    #[must_use]
    pub fn lowered_to(self, other: Limits) -> Limits {
        Limits {
            plan_calls: self.plan_calls.min(other.plan_calls),
            tokens: self.tokens.min(other.tokens),
            tool_calls: self.tool_calls.min(other.tool_calls),
            money_micros: self.money_micros.min(other.money_micros),
        }
    }
}

/// An amount, reserved or used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Amount {
    /// Planner calls.
    pub plan_calls: u32,
    /// Tokens.
    pub tokens: u64,
    /// Tool attempts.
    pub tool_calls: u32,
    /// Millionths of the currency.
    pub money_micros: u64,
}

impl Amount {
    /// Sum, saturating.
    #[must_use]
    pub fn plus(self, o: Amount) -> Amount {
        Amount {
            plan_calls: self.plan_calls.saturating_add(o.plan_calls),
            tokens: self.tokens.saturating_add(o.tokens),
            tool_calls: self.tool_calls.saturating_add(o.tool_calls),
            money_micros: self.money_micros.saturating_add(o.money_micros),
        }
    }
    /// Difference, saturating at zero.
    #[must_use]
    pub fn minus(self, o: Amount) -> Amount {
        Amount {
            plan_calls: self.plan_calls.saturating_sub(o.plan_calls),
            tokens: self.tokens.saturating_sub(o.tokens),
            tool_calls: self.tool_calls.saturating_sub(o.tool_calls),
            money_micros: self.money_micros.saturating_sub(o.money_micros),
        }
    }
    /// The first limit that this amount passes, if any.
    pub fn over(self, limits: &Limits) -> Option<&'static str> {
        let parts = [
            (self.plan_calls > limits.plan_calls, "plan_calls"),
            (self.tokens > limits.tokens, "tokens"),
            (self.tool_calls > limits.tool_calls, "tool_calls"),
            (self.money_micros > limits.money_micros, "money_micros"),
        ];
        parts.iter().find(|(over, _)| *over).map(|(_, name)| *name)
    }
}

/// A goal's budget as the fold of its journal gives it. What was reserved and never
/// settled (a crash in between) stays reserved: it may have been spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// What it may use.
    pub limits: Limits,
    /// Used or reserved so far.
    pub committed: Amount,
}

impl Budget {
    /// Would `more` pass a limit? Says which. Parts that it does not add to are not
    /// asked: one plan call that cost more tokens than it had reserved must not stop
    /// the tools.
    pub fn refuses(&self, more: Amount) -> Option<&'static str> {
        let sum = self.committed.plus(more);
        let asked = Amount {
            plan_calls: if more.plan_calls > 0 {
                sum.plan_calls
            } else {
                0
            },
            tokens: if more.tokens > 0 { sum.tokens } else { 0 },
            tool_calls: if more.tool_calls > 0 {
                sum.tool_calls
            } else {
                0
            },
            money_micros: if more.money_micros > 0 {
                sum.money_micros
            } else {
                0
            },
        };
        asked.over(&self.limits)
    }
    /// Reserves `more`; the caller has asked [`Budget::refuses`] before.
    pub fn reserve(&mut self, more: Amount) {
        self.committed = self.committed.plus(more);
    }
    /// Replaces a reservation by what was really used.
    pub fn settle(&mut self, reserved: Amount, used: Amount) {
        self.committed = self.committed.minus(reserved).plus(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_then_settle() {
        let mut b = Budget {
            limits: Limits {
                tokens: 100,
                ..Limits::default()
            },
            ..Budget::default()
        };
        let call = Amount {
            plan_calls: 1,
            tokens: 80,
            ..Amount::default()
        };
        assert_eq!(b.refuses(call), None);
        b.reserve(call);
        assert_eq!(b.refuses(call), Some("tokens"));
        b.settle(
            call,
            Amount {
                plan_calls: 1,
                tokens: 10,
                ..Amount::default()
            },
        );
        assert_eq!(b.refuses(call), None);
        assert_eq!(b.committed.plan_calls, 1);
    }
}
