//! Which `host:port` is allowed: exact names in one normal form, no patterns, no addresses.
//! It must not resolve anything.

use std::collections::BTreeSet;

use crate::policy::Network;

/// The longest name that DNS carries.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// The allow-list of a policy.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    allow: BTreeSet<(String, u16)>,
    private: BTreeSet<String>,
}

/// Why a destination is refused before anything is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is an address, or no name that DNS knows.
    NotAName,
    /// The name is not on the list, with any port.
    HostNotAllowed,
    /// The name is on the list with another port.
    PortNotAllowed,
}

impl Rules {
    /// Reads the entries of a policy.
    ///
    /// # Errors
    /// Says which entry is wrong.
    pub fn new(network: &Network) -> Result<Self, String> {
        let mut rules = Self::default();
        for entry in &network.allow {
            let pair = entry.rsplit_once(':').and_then(|(host, port)| {
                let port = port.parse().ok().filter(|port| *port != 0)?;
                Some((normal_name(host)?, port))
            });
            let wrong = || format!("network.allow entry {entry:?} is no host name with a port");
            rules.allow.insert(pair.ok_or_else(wrong)?);
        }
        for entry in &network.allow_private {
            let known = normal_name(entry).filter(|name| rules.knows(name));
            let wrong = || format!("network.allow_private entry {entry:?} is not in network.allow");
            rules.private.insert(known.ok_or_else(wrong)?);
        }
        Ok(rules)
    }

    /// The normal form of `host` if `host:port` is allowed.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn decide(&self, host: &str, port: u16) -> Result<String, Refusal> {
        let name = normal_name(host).ok_or(Refusal::NotAName)?;
        if self.allow.contains(&(name.clone(), port)) {
            return Ok(name);
        }
        if self.knows(&name) {
            return Err(Refusal::PortNotAllowed);
        }
        Err(Refusal::HostNotAllowed)
    }

    /// Whether this name may resolve to an address of an inside network.
    #[must_use]
    pub fn may_be_private(&self, name: &str) -> bool {
        self.private.contains(name)
    }

    fn knows(&self, name: &str) -> bool {
        self.allow.iter().any(|(known, _)| known == name)
    }
}

/// A name in small letters without the final dot; `None` for what is no name: addresses
/// in any notation, other characters than DNS has (international names come as `xn--`).
pub(super) fn normal_name(host: &str) -> Option<String> {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let labels_fine = name.split('.').all(is_label);
    // A last label that begins like a number makes resolvers read an address.
    let last = name.rsplit('.').next()?;
    let numeric = last.starts_with(|c: char| c.is_ascii_digit());
    (labels_fine && !numeric && name.len() <= NAME_BYTES_MAX).then_some(name)
}

fn is_label(label: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !label.is_empty()
        && label.len() <= LABEL_BYTES_MAX
        && label.chars().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let network = Network {
            allow: vec!["Good.Test.:443".into(), "xn--bcher-kva.test:443".into()],
            allow_private: vec!["good.test".into()],
        };
        Rules::new(&network).unwrap()
    }

    #[test]
    fn names_are_compared_in_one_form() {
        for host in ["good.test", "GOOD.test", "good.test."] {
            assert_eq!(rules().decide(host, 443), Ok("good.test".into()), "{host}");
        }
    }

    #[test]
    fn what_only_looks_like_an_allowed_name_is_refused() {
        let hosts = [
            "good.test.evil.test",
            "evilgood.test",
            "good.tes",
            "ood.test",
            "test",
        ];
        for host in hosts {
            assert_eq!(
                rules().decide(host, 443),
                Err(Refusal::HostNotAllowed),
                "{host}"
            );
        }
        assert_eq!(
            rules().decide("good.test", 80),
            Err(Refusal::PortNotAllowed)
        );
    }

    #[test]
    fn addresses_in_any_notation_are_no_names() {
        let hosts = [
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "[::1]",
            "::1",
            "169.254.169.254",
            "good.test\0.evil.test",
            "good..test",
            "good.test..",
            "",
            ".",
            "bücher.test",
            "good.test/",
            "user@good.test",
            " good.test",
            "-a.test",
            "good_test.x",
            "1.2.3.0x4",
        ];
        for host in hosts {
            assert_eq!(
                rules().decide(host, 443),
                Err(Refusal::NotAName),
                "{host:?}"
            );
        }
        assert!(rules().decide("xn--bcher-kva.test", 443).is_ok());
    }

    #[test]
    fn entries_that_cannot_be_meant_are_refused() {
        let entries = [
            "a.test",
            "a.test:0",
            "a.test:65536",
            "*.a.test:443",
            "10.0.0.1:80",
            ":443",
        ];
        for entry in entries {
            let network = Network {
                allow: vec![entry.into()],
                allow_private: vec![],
            };
            assert!(Rules::new(&network).unwrap_err().contains(entry), "{entry}");
        }
        let network = Network {
            allow: vec!["a.test:1".into()],
            allow_private: vec!["b.test".into()],
        };
        assert!(Rules::new(&network).unwrap_err().contains("b.test"));
    }
}
