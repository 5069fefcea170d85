//! What goes wrong on the way to a server, told apart by type.

use super::resolve::DnsFailed;
use std::error::Error;
use std::io;

/// Why there is no response. None of these says anything about the thing that was
/// asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The host's name has no address. Nothing was sent.
    #[error("no address for the host {host}")]
    Dns {
        /// The host.
        host: String,
    },
    /// No connection: refused, unreachable, or not within the connect timeout.
    /// Nothing was sent.
    #[error("no connection to {host}: {what}")]
    Connect {
        /// Host and port.
        host: String,
        /// The system's words.
        what: String,
    },
    /// The whole call did not end in time. Whether the server acted is not known.
    #[error("no complete answer from {host} within {timeout_ms} ms")]
    Timeout {
        /// Host and port.
        host: String,
        /// The deadline, milliseconds.
        timeout_ms: u64,
    },
    /// The TLS handshake failed. The request was not sent.
    #[error("no TLS with {host}: {what}")]
    Tls {
        /// Host and port.
        host: String,
        /// What is wrong, e.g. with the certificate.
        what: String,
    },
    /// The response's body is over the bound.
    #[error("the answer of {host} is larger than {max} bytes")]
    TooLarge {
        /// Host and port.
        host: String,
        /// The bound, bytes.
        max: usize,
    },
    /// The answer broke off or is not HTTP. Whether the server acted is not known.
    #[error("{host} broke off or broke the protocol: {what}")]
    Protocol {
        /// Host and port.
        host: String,
        /// What was wrong.
        what: String,
    },
    /// The address can't be used. Nothing was sent.
    #[error("not a usable address: {what}")]
    InvalidUrl {
        /// What is wrong with it; never the address itself.
        what: String,
    },
    /// A header can't be sent. Nothing was sent.
    #[error("not a usable header: {name}")]
    InvalidHeader {
        /// Its name.
        name: String,
    },
}

impl HttpError {
    /// Did the request certainly not reach the server?
    pub fn not_sent(&self) -> bool {
        match self {
            Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Tls { .. }
            | Self::InvalidUrl { .. }
            | Self::InvalidHeader { .. } => true,
            Self::Timeout { .. } | Self::TooLarge { .. } | Self::Protocol { .. } => false,
        }
    }

    /// Sorts an error of the library; its text never has the address in it.
    pub(crate) fn sort(error: &reqwest::Error, host: &str, connect_timeout_ms: u64) -> Self {
        let host = host.to_owned();
        if find::<DnsFailed>(error) {
            return Self::Dns { host };
        }
        let what = innermost(error);
        if find::<rustls::Error>(error) {
            return Self::Tls { host, what };
        }
        if error.is_connect() {
            let what = match error.is_timeout() {
                true => format!("none within {connect_timeout_ms} ms"),
                false => what,
            };
            return Self::Connect { host, what };
        }
        Self::Protocol { host, what }
    }
}

/// Why no client can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpSetupError {
    /// The proxy's address can't be used.
    #[error("the proxy's address can't be used")]
    Proxy,
    /// TLS can't be set up, for instance because the system's certificates are broken.
    #[error("the client can't be set up: {what}")]
    Client {
        /// What is wrong.
        what: String,
    },
}

/// Is there an error of type `T` in the chain? An `io::Error` hides what it wraps from
/// `source`, so it is opened by hand.
fn find<T: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    if error.is::<T>() {
        return true;
    }
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    if wrapped.is_some_and(|inner| find::<T>(inner)) {
        return true;
    }
    error.source().is_some_and(find::<T>)
}

/// The last error's words: the outer ones repeat the address.
pub(crate) fn innermost(error: &dyn Error) -> String {
    let mut last = error.source();
    while let Some(next) = last.and_then(Error::source) {
        last = Some(next);
    }
    last.map_or_else(|| "no details".to_owned(), ToString::to_string)
}
