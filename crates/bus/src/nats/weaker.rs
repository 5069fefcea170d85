//! Which settings of a standing stream are weaker than wanted.
//!
//! Promises: names each with what it is and what it has to be. What may be stronger
//! (copies, limits) is compared by strength, what has one right value by equality. A
//! setting that is not listed in [`compare`] does not matter.
//!
//! Must not know: how a stream is asked.

use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, StorageType};
use std::fmt::Debug;
use std::time::Duration;

/// Makes the setting as wanted.
pub(super) type Mend = fn(standing: &mut Config, wanted: &Config);

/// A setting that is too weak.
pub(super) struct Weaker {
    /// `setting is X, has to be Y`.
    pub(super) text: String,
    /// How it is changed in place; `None` where JetStream does not allow that.
    pub(super) mend: Option<Mend>,
}

struct Compare<'a> {
    standing: &'a Config,
    wanted: &'a Config,
    weaker: Vec<Weaker>,
}

/// Every setting of `standing` that is weaker than `wanted`.
pub(super) fn compare(standing: &Config, wanted: &Config) -> Vec<Weaker> {
    let mut all = Compare {
        standing,
        wanted,
        weaker: Vec::new(),
    };
    all.what_it_takes();
    all.how_it_keeps();
    all.how_much_it_keeps();
    all.what_may_be_asked_of_it();
    all.weaker
}

impl Compare<'_> {
    fn check<T: Debug>(
        &mut self,
        setting: &str,
        of: fn(&Config) -> T,
        holds: fn(&T, &T) -> bool,
        mend: Option<Mend>,
    ) {
        let (is, has_to_be) = (of(self.standing), of(self.wanted));
        if !holds(&is, &has_to_be) {
            let text = format!("{setting} is {is:?}, has to be {has_to_be:?}");
            self.weaker.push(Weaker { text, mend });
        }
    }

    fn what_it_takes(&mut self) {
        let subjects = |c: &Config| {
            let mut subjects = c.subjects.clone();
            subjects.sort();
            subjects
        };
        self.check(
            "subjects",
            subjects,
            PartialEq::eq,
            Some(|s, w| {
                s.subjects.clone_from(&w.subjects);
            }),
        );
        let foreign = |c: &Config| {
            (
                c.mirror.is_some(),
                c.sources.as_ref().map_or(0, Vec::len),
                c.subject_transform.is_some(),
            )
        };
        self.check(
            "(mirror, sources, subject_transform)",
            foreign,
            PartialEq::eq,
            None,
        );
        self.check("sealed", |c| c.sealed, PartialEq::eq, None);
        self.check(
            "no_ack",
            |c| c.no_ack,
            PartialEq::eq,
            Some(|s, w| s.no_ack = w.no_ack),
        );
        self.check(
            "max_msg_size",
            |c| c.max_message_size,
            at_least_i32,
            Some(|s, w| {
                s.max_message_size = w.max_message_size;
            }),
        );
        self.check(
            "allow_msg_counter",
            |c| c.allow_message_counter,
            PartialEq::eq,
            None,
        );
        self.check(
            "duplicate_window",
            |c| c.duplicate_window,
            |is, min| is >= min,
            Some(|s, w| {
                s.duplicate_window = w.duplicate_window;
            }),
        );
    }

    fn how_it_keeps(&mut self) {
        let stored =
            |is: &StorageType, wanted: &StorageType| is == wanted || *is == StorageType::File;
        self.check("storage", |c| c.storage, stored, None);
        // Confirmed before it is stored.
        let asynchronous = |c: &Config| c.persist_mode == Some(PersistenceMode::Async);
        self.check("persist_mode async", asynchronous, PartialEq::eq, None);
        self.check(
            "num_replicas",
            |c| c.num_replicas,
            |is, min| is >= min,
            Some(|s, w| {
                s.num_replicas = w.num_replicas;
            }),
        );
        self.check("retention", |c| c.retention, PartialEq::eq, None);
    }

    fn how_much_it_keeps(&mut self) {
        let old = |c: &Config| c.discard == DiscardPolicy::Old;
        self.check(
            "discard old",
            old,
            PartialEq::eq,
            Some(|s, w| s.discard = w.discard),
        );
        let per_subject = |c: &Config| c.discard_new_per_subject;
        self.check(
            "discard_new_per_subject",
            per_subject,
            PartialEq::eq,
            Some(|s, w| {
                s.discard_new_per_subject = w.discard_new_per_subject;
            }),
        );
        self.check(
            "max_age",
            |c| c.max_age,
            at_least_age,
            Some(|s, w| s.max_age = w.max_age),
        );
        self.check(
            "max_msgs",
            |c| c.max_messages,
            at_least,
            Some(|s, w| {
                s.max_messages = w.max_messages;
            }),
        );
        self.check(
            "max_bytes",
            |c| c.max_bytes,
            at_least,
            Some(|s, w| s.max_bytes = w.max_bytes),
        );
        // Not a matter of strength: what it keeps of a subject is its meaning.
        let per_subject = |c: &Config| c.max_messages_per_subject.max(-1);
        let same = |is: &i64, wanted: &i64| is == wanted || (unlimited(*is) && unlimited(*wanted));
        self.check(
            "max_msgs_per_subject",
            per_subject,
            same,
            Some(|s, w| {
                s.max_messages_per_subject = w.max_messages_per_subject;
            }),
        );
        let marker = |c: &Config| c.subject_delete_marker_ttl.unwrap_or_default();
        self.check(
            "subject_delete_marker_ttl",
            marker,
            PartialEq::eq,
            Some(|s, w| {
                s.subject_delete_marker_ttl = w.subject_delete_marker_ttl;
            }),
        );
    }

    fn what_may_be_asked_of_it(&mut self) {
        self.check("deny_delete", |c| c.deny_delete, PartialEq::eq, None);
        self.check("deny_purge", |c| c.deny_purge, PartialEq::eq, None);
        self.check(
            "allow_rollup_hdrs",
            |c| c.allow_rollup,
            if_wanted,
            Some(|s, _| {
                s.allow_rollup = true;
            }),
        );
        self.check(
            "allow_direct",
            |c| c.allow_direct,
            if_wanted,
            Some(|s, _| {
                s.allow_direct = true;
            }),
        );
        self.check(
            "allow_msg_ttl",
            |c| c.allow_message_ttl,
            if_wanted,
            Some(|s, _| {
                s.allow_message_ttl = true;
            }),
        );
        let consumers = |c: &Config| i64::from(c.max_consumers);
        self.check("max_consumers", consumers, at_least, None);
    }
}

fn if_wanted(is: &bool, wanted: &bool) -> bool {
    *is || !wanted
}

/// 0 is what a client leaves out.
fn unlimited(limit: i64) -> bool {
    limit <= 0
}

fn at_least(is: &i64, min: &i64) -> bool {
    unlimited(*is) || (!unlimited(*min) && is >= min)
}

fn at_least_i32(is: &i32, min: &i32) -> bool {
    at_least(&i64::from(*is), &i64::from(*min))
}

fn at_least_age(is: &Duration, min: &Duration) -> bool {
    is.is_zero() || (!min.is_zero() && is >= min)
}

#[cfg(test)]
mod tests {
    use super::super::{NatsOptions, layout};
    use super::*;

    fn wanted() -> Config {
        let options = NatsOptions::new("nats://localhost", "n");
        layout::stream(&options)
    }

    fn texts(standing: &Config) -> Vec<String> {
        let weaker = compare(standing, &wanted());
        weaker.into_iter().map(|w| w.text).collect()
    }

    #[test]
    fn the_same_and_the_stronger_are_fine() {
        assert_eq!(texts(&wanted()), [""; 0]);
        let stronger = Config {
            num_replicas: 5,
            max_bytes: -1,
            max_message_size: -1,
            max_messages: 0,
            duplicate_window: Duration::from_secs(120),
            description: None,
            ..wanted()
        };
        assert_eq!(texts(&stronger), [""; 0]);
    }

    #[test]
    fn each_weakness_is_named() {
        type Weaken = fn(&mut Config);
        let cases: [(&str, Weaken); 16] = [
            ("subjects", |c| c.subjects.push("x.>".into())),
            ("storage", |c| c.storage = StorageType::Memory),
            ("persist_mode", |c| {
                c.persist_mode = Some(PersistenceMode::Async)
            }),
            ("num_replicas", |c| c.num_replicas = 0),
            ("discard", |c| c.discard = DiscardPolicy::Old),
            ("max_age", |c| c.max_age = Duration::from_secs(1)),
            ("max_msgs", |c| c.max_messages = 10),
            ("max_bytes", |c| c.max_bytes = 10),
            ("max_msgs_per_subject", |c| c.max_messages_per_subject = 1),
            ("max_msg_size", |c| c.max_message_size = 1000),
            ("deny_delete", |c| c.deny_delete = false),
            ("deny_purge", |c| c.deny_purge = true),
            ("allow_rollup", |c| c.allow_rollup = false),
            ("allow_direct", |c| c.allow_direct = false),
            ("allow_msg_ttl", |c| c.allow_message_ttl = false),
            ("no_ack", |c| c.no_ack = true),
        ];
        for (setting, weaken) in cases {
            let mut standing = wanted();
            weaken(&mut standing);
            let texts = texts(&standing);
            assert_eq!(texts.len(), 1, "{setting}: {texts:?}");
            assert!(texts[0].starts_with(setting), "{texts:?}");
            assert!(texts[0].contains(", has to be "), "{texts:?}");
        }
    }

    #[test]
    fn mending_makes_it_as_wanted() {
        let mut standing = Config {
            num_replicas: 0,
            discard: DiscardPolicy::Old,
            max_age: Duration::from_secs(1),
            max_bytes: 1,
            max_messages: 1,
            max_messages_per_subject: 1,
            max_message_size: 1,
            allow_rollup: false,
            ..wanted()
        };
        for weaker in compare(&standing, &wanted()) {
            weaker.mend.expect("can be mended")(&mut standing, &wanted());
        }
        assert_eq!(texts(&standing), [""; 0]);
    }
}
