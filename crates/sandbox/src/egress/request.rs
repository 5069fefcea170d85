//! Reading what a sandboxed client asks the proxy for, from bytes that nobody vouches for:
//! the head of one HTTP request, or the first message of TLS. It must not connect anything.

use super::rules::normal_name;

/// Bound on the head of a request.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bound on the first TLS message.
pub(super) const HELLO_BYTES_MAX: usize = 16 * 1024 + 5;

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A tunnel.
    Tunnel { host: String, port: u16 },
    /// One request, whose new head and length of body are these.
    Forward {
        host: String,
        port: u16,
        head: Vec<u8>,
        body_bytes: u64,
    },
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadRequest {
    /// It is no HTTP/1 request to a proxy.
    Malformed,
    /// Its Host header names another host than its target.
    HostMismatch,
    /// Its body has no length.
    NoLength,
}

/// The length of the head in `bytes`, its empty line included; `None` while incomplete.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4)
}

/// Reads a complete head.
pub(super) fn parse(head: &[u8]) -> Result<Wish, BadRequest> {
    let text = std::str::from_utf8(head).map_err(|_| BadRequest::Malformed)?;
    let clean = text
        .chars()
        .all(|c| !c.is_control() || matches!(c, '\r' | '\n' | '\t'));
    // A lone CR or LF means different things to different servers.
    let lines: Vec<&str> = text.split("\r\n").collect();
    if !clean || lines.iter().any(|line| line.contains(['\r', '\n'])) {
        return Err(BadRequest::Malformed);
    }
    let mut words = lines[0].split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        return Err(BadRequest::Malformed);
    };
    let headers = headers(&lines[1..])?;
    if method == "CONNECT" {
        let (host, port) = authority(target, None).ok_or(BadRequest::Malformed)?;
        return Ok(Wish::Tunnel { host, port });
    }
    forward(method, target, &headers)
}

fn headers<'a>(lines: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, BadRequest> {
    let mut headers = Vec::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(BadRequest::Malformed)?;
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            return Err(BadRequest::Malformed);
        }
        headers.push((name, value.trim()));
    }
    Ok(headers)
}

fn forward(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<Wish, BadRequest> {
    let token = !method.is_empty() && method.chars().all(|c| c.is_ascii_uppercase());
    let rest = target.strip_prefix("http://").filter(|_| token);
    let rest = rest.ok_or(BadRequest::Malformed)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority_part, path) = rest.split_at(end);
    let (host, port) = authority(authority_part, Some(80)).ok_or(BadRequest::Malformed)?;
    let mut body_bytes = None;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {authority_part}\r\n");
    for (name, value) in headers {
        match name.to_ascii_lowercase().as_str() {
            "host" => same_host(value, &host, port)?,
            "transfer-encoding" => return Err(BadRequest::NoLength),
            "content-length" => {
                let length: u64 = value.parse().map_err(|_| BadRequest::Malformed)?;
                if body_bytes.replace(length).is_some() {
                    return Err(BadRequest::Malformed);
                }
                head += &format!("{name}: {length}\r\n");
            }
            "connection"
            | "proxy-connection"
            | "keep-alive"
            | "upgrade"
            | "te"
            | "trailer"
            | "proxy-authorization" => {}
            _ => head += &format!("{name}: {value}\r\n"),
        }
    }
    head += "Connection: close\r\n\r\n";
    Ok(Wish::Forward {
        host,
        port,
        head: head.into_bytes(),
        body_bytes: body_bytes.unwrap_or(0),
    })
}

/// A front for one host must not carry requests to another behind it.
fn same_host(value: &str, host: &str, port: u16) -> Result<(), BadRequest> {
    let (named, its_port) = authority(value, Some(80)).ok_or(BadRequest::HostMismatch)?;
    let same = match (normal_name(&named), normal_name(host)) {
        (Some(named), Some(host)) => named == host,
        _ => named == host,
    };
    if same && its_port == port {
        Ok(())
    } else {
        Err(BadRequest::HostMismatch)
    }
}

/// `host:port` without anything around it.
fn authority(text: &str, default_port: Option<u16>) -> Option<(String, u16)> {
    if text.contains('@') {
        return None;
    }
    let split = if text.ends_with(']') {
        None
    } else {
        text.rsplit_once(':')
    };
    let (host, port) = match split {
        Some((host, port)) => (
            host,
            Some(port).filter(|p| p.bytes().all(|b| b.is_ascii_digit()))?,
        ),
        None => return Some((text.to_owned(), default_port?)),
    };
    Some((
        host.to_owned(),
        port.parse().ok().filter(|port| *port != 0)?,
    ))
}

/// What the first bytes of a tunnel are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Too few to say.
    Incomplete,
    /// TLS that names this server, or none.
    Tls(Option<String>),
    /// Something else.
    Other,
}

/// Looks for the server name in the first TLS record.
pub(super) fn opening(bytes: &[u8]) -> Opening {
    let Some((head, rest)) = bytes.split_at_checked(5) else {
        let could_be = bytes.first().is_none_or(|first| *first == 0x16);
        return if could_be {
            Opening::Incomplete
        } else {
            Opening::Other
        };
    };
    if head[0] != 0x16 || head[1] != 0x03 {
        return Opening::Other;
    }
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    if rest.len() < length {
        return Opening::Incomplete;
    }
    // A hello that is cut into several records to hide its name has none to show.
    Opening::Tls(server_name(&rest[..length]))
}

fn server_name(record: &[u8]) -> Option<String> {
    let mut hello = Cursor(record);
    if hello.take(1)? != [1] {
        return None;
    }
    let length = hello.number(3)?;
    let mut hello = Cursor(hello.take(length)?);
    hello.take(2 + 32)?;
    for length_bytes in [1, 2, 1] {
        let length = hello.number(length_bytes)?;
        hello.take(length)?;
    }
    let length = hello.number(2)?;
    let mut extensions = Cursor(hello.take(length)?);
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let length = extensions.number(2)?;
        let mut content = Cursor(extensions.take(length)?);
        if kind == 0 {
            content.number(2)?;
            let host_name = content.take(1)? == [0];
            let length = content.number(2)?;
            let name = content.take(length)?;
            let alone = host_name && content.0.is_empty();
            return alone.then(|| String::from_utf8(name.to_vec()).ok())?;
        }
    }
    None
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        let digits = self.take(bytes)?;
        Some(
            digits
                .iter()
                .fold(0, |all, byte| all << 8 | usize::from(*byte)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(target: &str) -> Result<Wish, BadRequest> {
        parse(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
    }

    #[test]
    fn a_tunnel_names_host_and_port() {
        let wish = Wish::Tunnel {
            host: "a.test".into(),
            port: 443,
        };
        assert_eq!(tunnel("a.test:443"), Ok(wish));
        for target in [
            "a.test",
            "a.test:",
            "a.test:0",
            "a.test:99999",
            "a.test:+1",
            "u@a.test:1",
        ] {
            assert_eq!(tunnel(target), Err(BadRequest::Malformed), "{target}");
        }
    }

    #[test]
    fn a_request_is_written_anew_with_its_own_host() {
        let head = b"GET http://a.test:8080/x?y HTTP/1.1\r\nHost: A.test.:8080\r\n\
                     Proxy-Authorization: s\r\nX: y\r\n\r\n";
        let Ok(Wish::Forward {
            host,
            port,
            head,
            body_bytes,
        }) = parse(head)
        else {
            panic!("refused");
        };
        assert_eq!((host.as_str(), port, body_bytes), ("a.test", 8080, 0));
        let expected =
            "GET /x?y HTTP/1.1\r\nHost: a.test:8080\r\nX: y\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), expected);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let get = |headers: &str| {
            parse(format!("GET http://a.test/ HTTP/1.1\r\n{headers}\r\n").as_bytes())
        };
        assert_eq!(get("Host: b.test\r\n"), Err(BadRequest::HostMismatch));
        assert_eq!(get("Host: a.test:81\r\n"), Err(BadRequest::HostMismatch));
        assert_eq!(
            get("Transfer-Encoding: chunked\r\n"),
            Err(BadRequest::NoLength)
        );
        let bad = [
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: -1\r\n",
            "Host : a.test\r\n",
            "X: a\nHost: b.test\r\n",
            "X: \0\r\n",
            " folded\r\n",
        ];
        for headers in bad {
            assert_eq!(get(headers), Err(BadRequest::Malformed), "{headers:?}");
        }
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET http://a.test/ HTTP/2\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert_eq!(
                parse(head.as_bytes()),
                Err(BadRequest::Malformed),
                "{head:?}"
            );
        }
    }

    pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
        let mut extensions = Vec::new();
        if let Some(name) = name {
            let length = u16::try_from(name.len()).unwrap();
            extensions.extend([0, 0]);
            extensions.extend((length + 5).to_be_bytes());
            extensions.extend((length + 3).to_be_bytes());
            extensions.push(0);
            extensions.extend(length.to_be_bytes());
            extensions.extend(name.as_bytes());
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let mut record = vec![1, 0];
        record.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        record.extend(body);
        let mut bytes = vec![0x16, 3, 1];
        bytes.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
        bytes.extend(record);
        bytes
    }

    #[test]
    fn the_server_name_is_read_from_the_first_record() {
        let bytes = hello(Some("a.test"));
        assert_eq!(opening(&bytes), Opening::Tls(Some("a.test".into())));
        assert_eq!(opening(&hello(None)), Opening::Tls(None));
        for cut in 0..bytes.len() {
            assert_eq!(opening(&bytes[..cut]), Opening::Incomplete, "{cut}");
        }
        assert_eq!(opening(b"GET / HTTP/1.1"), Opening::Other);
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let good = hello(Some("a.test"));
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let _ = opening(&bytes);
            }
        }
    }
}
