//! Finds who listens to a subject: exact patterns by hash, the others one by one.

use detent_protocol::subject::matches;
use std::collections::HashMap;

/// Entries by subject pattern. What is looked up for every message are subjects, so
/// patterns without wildcards, however many, cost one look-up.
pub(crate) struct Routes<T> {
    exact: HashMap<String, Vec<Entry<T>>>,
    wild: Vec<(String, Entry<T>)>,
    len: usize,
    next_id: u64,
}

struct Entry<T> {
    id: u64,
    value: T,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            wild: Vec::new(),
            len: 0,
            next_id: 0,
        }
    }
}

impl<T> Routes<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry; gives the id to remove it by.
    pub(crate) fn add(&mut self, pattern: &str, value: T) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.len += 1;
        let entry = Entry { id, value };
        if is_wild(pattern) {
            self.wild.push((pattern.to_owned(), entry));
        } else {
            self.exact
                .entry(pattern.to_owned())
                .or_default()
                .push(entry);
        }
        id
    }

    /// Removes an entry and gives it; `None` when it is gone already.
    pub(crate) fn remove(&mut self, pattern: &str, id: u64) -> Option<T> {
        let entry = if is_wild(pattern) {
            let at = self.wild.iter().position(|(_, entry)| entry.id == id)?;
            self.wild.remove(at).1
        } else {
            let entries = self.exact.get_mut(pattern)?;
            let at = entries.iter().position(|entry| entry.id == id)?;
            let entry = entries.remove(at);
            if entries.is_empty() {
                self.exact.remove(pattern);
            }
            entry
        };
        self.len -= 1;
        Some(entry.value)
    }

    /// All entries whose pattern matches, those of exact patterns first.
    pub(crate) fn matching(&self, subject: &str) -> impl Iterator<Item = &T> {
        let exact = self.exact.get(subject).into_iter().flatten();
        let wild = self.wild.iter();
        let wild = wild.filter(move |(pattern, _)| matches(pattern, subject));
        exact.chain(wild.map(|(_, entry)| entry)).map(|e| &e.value)
    }

    /// All entries.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        let wild = self.wild.iter().map(|(_, entry)| entry);
        let all = self.exact.values().flatten().chain(wild);
        all.map(|entry| &entry.value)
    }

    /// Entries with exactly this pattern.
    pub(crate) fn of_pattern(&self, pattern: &str) -> impl Iterator<Item = &T> {
        let exact = self.exact.get(pattern).into_iter().flatten();
        let wild = self.wild.iter().filter(move |(p, _)| p == pattern);
        exact.chain(wild.map(|(_, entry)| entry)).map(|e| &e.value)
    }
}

fn is_wild(pattern: &str) -> bool {
    pattern.split('.').any(|token| token == "*" || token == ">")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(routes: &Routes<u8>, subject: &str) -> Vec<u8> {
        routes.matching(subject).copied().collect()
    }

    #[test]
    fn exact_and_wild_patterns_are_found_and_forgotten() {
        let mut routes = Routes::default();
        let exact = routes.add("a.b", 1);
        let wild = routes.add("a.*", 2);
        routes.add("a.>", 3);
        assert_eq!(found(&routes, "a.b"), [1, 2, 3]);
        assert_eq!(found(&routes, "a.b.c"), [3]);
        assert!(found(&routes, "b").is_empty());
        assert_eq!(routes.remove("a.b", exact), Some(1));
        assert_eq!(routes.remove("a.*", wild), Some(2));
        assert_eq!(routes.remove("a.*", wild), None);
        assert_eq!(found(&routes, "a.b"), [3]);
        assert_eq!(routes.len(), 1);
    }
}
