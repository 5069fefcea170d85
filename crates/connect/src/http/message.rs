//! Requests and responses as plain data.

use bytes::Bytes;
use std::fmt;

/// The methods that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HttpMethod {
    /// Reads.
    Get,
    /// Reads without a body.
    Head,
    /// Does something; not idempotent by itself.
    Post,
    /// Replaces.
    Put,
    /// Changes a part.
    Patch,
    /// Removes.
    Delete,
}

impl HttpMethod {
    /// The method with this name, in upper case.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => return None,
        })
    }

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    pub(crate) fn to_reqwest(self) -> reqwest::Method {
        match self {
            Self::Get => reqwest::Method::GET,
            Self::Head => reqwest::Method::HEAD,
            Self::Post => reqwest::Method::POST,
            Self::Put => reqwest::Method::PUT,
            Self::Patch => reqwest::Method::PATCH,
            Self::Delete => reqwest::Method::DELETE,
        }
    }
}

/// One request.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method.
    pub method: HttpMethod,
    /// Absolute address, `http` or `https`. A user and password in it become basic
    /// authorization.
    pub url: String,
    /// Headers, in order; names may repeat.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Option<Bytes>,
    /// Deadline over the whole call, milliseconds; the client's own where `None`.
    pub timeout_ms: Option<u64>,
}

impl HttpRequest {
    /// A request without headers and body, under the client's own deadline.
    #[must_use]
    pub fn new(method: HttpMethod, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            headers: Vec::new(),
            body: None,
            timeout_ms: None,
        }
    }
}

impl fmt::Debug for HttpRequest {
    /// Leaves out the values of headers, the body and the secret parts of the address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("url", &public_url(&self.url))
            .field("headers", &headers)
            .field("body_bytes", &self.body.as_ref().map(Bytes::len))
            .field("timeout_ms", &self.timeout_ms)
            .finish()
    }
}

/// A whole answer.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status, 100 to 999.
    pub status: u16,
    /// Headers with names in lower case; what is not UTF-8 in a value is replaced.
    pub headers: Vec<(String, String)>,
    /// Body, at most `response_bytes_max` bytes.
    pub body: Bytes,
    /// Milliseconds that the server asks to wait before the next try (`Retry-After`),
    /// at most [`super::RETRY_AFTER_MS_MAX`].
    pub retry_after_ms: Option<u64>,
}

impl HttpResponse {
    /// The first header with this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for HttpResponse {
    /// Leaves out the values of headers and the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("headers", &headers)
            .field("body_bytes", &self.body.len())
            .field("retry_after_ms", &self.retry_after_ms)
            .finish()
    }
}

/// An address as it may be shown: scheme, host, port and path, without user,
/// password, query and fragment. What is no address is not shown at all.
pub fn public_url(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else {
        return "(not an address)".into();
    };
    if url.cannot_be_a_base() {
        return "(not an address)".into();
    }
    // These fail only for addresses without a host, which have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_address_has_no_secret_part() {
        let shown = public_url("https://user:hunter2@api.test:8443/v1/a?key=s3cret#frag");
        assert_eq!(shown, "https://api.test:8443/v1/a");
        assert_eq!(public_url("hunter2 s3cret"), "(not an address)");
        assert_eq!(public_url("mailto:hunter2@x.test"), "(not an address)");
    }

    #[test]
    fn debug_shows_neither_headers_nor_body() {
        let mut request = HttpRequest::new(HttpMethod::Post, "http://u:hunter2@h.test/?k=hunter2");
        request.headers = vec![("authorization".into(), "hunter2".into())];
        request.body = Some(Bytes::from_static(b"hunter2"));
        let shown = format!("{request:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("authorization"), "{shown}");
    }

    #[test]
    fn methods_have_their_names() {
        for name in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            let method = HttpMethod::parse(name).unwrap();
            assert_eq!(method.as_str(), name);
            assert_eq!(method.to_reqwest().as_str(), name);
        }
        assert_eq!(HttpMethod::parse("get"), None);
    }
}
