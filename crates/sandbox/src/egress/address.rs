//! Which addresses belong to somebody out there. It must not know names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is on the public internet: not this host, not an inside network,
/// not link-local (where clouds keep their metadata), not multicast, not reserved.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match a {
        // This network, private, loopback, multicast and reserved.
        0 | 10 | 127 | 224..=255 => true,
        // Carrier-grade NAT, where some clouds keep their metadata too.
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        // Private, protocol assignments, test nets, 6to4 relays.
        192 => b == 168 || (b == 0 && (c == 0 || c == 2)) || (b == 88 && c == 99),
        // Benchmarks, test net.
        198 => b == 18 || b == 19 || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [s0, s1, ..] = address.segments();
    // Whatever embeds an IPv4 address is reached more plainly by that address.
    let global = s0 & 0xe000 == 0x2000;
    let teredo_or_test = s0 == 0x2001 && (s1 < 0x0200 || s1 == 0x0db8);
    let six_to_four = s0 == 0x2002;
    let docs = s0 == 0x3fff;
    global && !teredo_or_test && !six_to_four && !docs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_and_special_addresses_are_not_public() {
        let inside = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
        ];
        for address in inside {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn the_internet_is_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
