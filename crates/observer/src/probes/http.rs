//! Looks at an address.
//!
//! Parameters `{url, method?: "GET"|"HEAD", headers?}`. Sees `{status, body, bytes}`: the
//! body of a 2xx or 3xx as JSON where it is JSON, else as text of at most
//! [`TEXT_BYTES_MAX`] bytes (`body_cut` beside it where it was longer), `null` where it
//! is neither or with HEAD; `bytes` only where there are any.
//!
//! The body of a refusal (4xx, 5xx) stands in `error_body`, and `body` is `null`: an
//! error page is not the thing that was asked for. Only 2xx, 404 and 410 speak about the
//! thing; any other status leaves a doubt. Redirects are not followed.

use crate::probe::{Look, Probe, ProbeContext, read_params, unavailable};
use async_trait::async_trait;
use detent_connect::http::{
    HttpClient, HttpMethod, HttpOptions, HttpRequest, HttpResponse, HttpSetupError, public_url,
};
use detent_protocol::Fault;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest text of a body that is not JSON, bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Largest body, bytes; a larger one can't be looked at.
const BODY_BYTES_MAX: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    url: String,
    #[serde(default)]
    method: Method,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Method {
    #[default]
    Get,
    Head,
}

/// Probe `http`.
#[derive(Debug, Clone)]
pub struct HttpProbe {
    client: HttpClient,
}

impl HttpProbe {
    /// A probe with a client of its own, which uses no proxy.
    ///
    /// # Errors
    /// [`HttpSetupError`] where TLS can't be set up.
    pub fn new() -> Result<Self, HttpSetupError> {
        let client = HttpClient::new(HttpOptions {
            response_bytes_max: BODY_BYTES_MAX,
            ..HttpOptions::default()
        })?;
        Ok(Self { client })
    }

    /// A probe with this client, for instance one with a proxy.
    pub fn with_client(client: HttpClient) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Probe for HttpProbe {
    fn kind(&self) -> &str {
        "http"
    }

    async fn look(&self, params: &Value, cx: &ProbeContext) -> Result<Look, Fault> {
        let params: Params = read_params(params)?;
        let method = match params.method {
            Method::Get => HttpMethod::Get,
            Method::Head => HttpMethod::Head,
        };
        let what = format!("{} {}", method.as_str(), public_url(&params.url));
        let answer = self.client.send(HttpRequest {
            method,
            url: params.url,
            headers: params.headers.into_iter().collect(),
            body: None,
            timeout_ms: Some(cx.timeout_ms),
        });
        let answer = answer.await.map_err(|e| unavailable(e.to_string()))?;
        Ok(Look {
            what,
            seen: seen(&answer, method),
            doubt: doubt(&answer),
        })
    }
}

fn seen(answer: &HttpResponse, method: HttpMethod) -> Value {
    let refused = answer.status >= 400;
    let mut seen = json!({"status": answer.status, "body": null});
    if answer.body.is_empty() {
        if method == HttpMethod::Get && !refused {
            seen["body"] = "".into();
        }
        return seen;
    }
    let (body, cut) = body_of(&answer.body);
    if refused {
        seen["error_body"] = body;
        return seen;
    }
    seen["body"] = body;
    seen["bytes"] = answer.body.len().into();
    if cut {
        seen["body_cut"] = true.into();
    }
    seen
}

/// The body, and whether it was cut.
fn body_of(bytes: &[u8]) -> (Value, bool) {
    if let Ok(json) = serde_json::from_slice(bytes) {
        return (json, false);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return (Value::Null, false);
    };
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    (text[..end].into(), end < text.len())
}

fn doubt(answer: &HttpResponse) -> Option<Fault> {
    if matches!(answer.status, 200..=299 | 404 | 410) {
        return None;
    }
    let mut fault = unavailable(format!("the server answered with status {}", answer.status));
    fault.retry_after_ms = answer.retry_after_ms;
    Some(fault)
}
