//! Free ports that stay free.

use detent_protocol::{Code, Fault};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Where ports are looked for: below those that the system hands to outgoing connections
/// (from 32,768 on). A client that keeps trying to reach a server which is down could
/// otherwise be given the server's own port, connect to itself, and keep the server from
/// coming back.
const FROM: u16 = 11_000;
const BELOW: u16 = 32_000;

/// Some free ports on the loopback interface, no two the same. Nothing keeps them free
/// until they are used; whoever uses them tries again.
///
/// # Errors
/// `PORT_TAKEN` when there are none.
pub fn free(count: usize) -> Result<Vec<u16>, Fault> {
    let span = BELOW - FROM;
    let chance = RandomState::new().build_hasher().finish();
    let start = u16::try_from(chance % u64::from(span)).unwrap_or(0);
    let ports = (0..span).map(|n| FROM + (start + n) % span);
    // Held until all are found, so that none is found twice.
    let held = ports.filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let held: Vec<_> = held.take(count).collect();
    let found = held.iter().filter_map(|l| l.local_addr().ok());
    let found: Vec<_> = found.map(|address| address.port()).collect();
    if found.len() == count {
        return Ok(found);
    }
    let text = format!("no free port between {FROM} and {BELOW} for a nats-server");
    Err(Fault::new(Code::PortTaken, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_bound() {
        let mut ports = free(8).unwrap();
        for port in &ports {
            assert!((FROM..BELOW).contains(port));
        }
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }
}
