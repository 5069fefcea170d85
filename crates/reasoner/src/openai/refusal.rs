//! What an answer that is no success means.
//!
//! Promises: a fault that names the next thing to do, with a time to try again only
//! where trying again can help. Must never know: the key.

use super::Mode;
use detent_connect::http::{HttpError, HttpResponse};
use detent_protocol::redact::Redactor;
use detent_protocol::{Code, Fault};
use serde_json::Value;

/// Longest wait that an endpoint may ask for, milliseconds.
pub(crate) const RETRY_AFTER_MS_MAX: u64 = 10 * 60 * 1000;

/// Longest part of an endpoint's own words in a fault, characters.
const WORDS_MAX: usize = 300;

/// Does the endpoint say that it does not take this form of structured output?
pub(crate) fn is_unsupported(mode: Mode, response: &HttpResponse) -> bool {
    if mode == Mode::Plain || !matches!(response.status, 400 | 422) {
        return false;
    }
    let text = String::from_utf8_lossy(&response.body).to_lowercase();
    let named = [
        "response_format",
        "json_schema",
        "json_object",
        "structured",
    ];
    named.iter().any(|n| text.contains(n))
}

/// The fault for a response with another status than 200 to 299.
pub(crate) fn fault_of(name: &str, response: &HttpResponse, redactor: &Redactor) -> Fault {
    let status = response.status;
    let unavailable = |m: String| Fault::new(Code::ModelUnavailable, format!("{name}: {m}"));
    match status {
        // The body is left out: some endpoints repeat the key in it.
        401 | 403 => unavailable(format!(
            "the endpoint refuses the key (HTTP {status}); \
             check reasoners.{name}.api_key_env or api_key_file"
        )),
        404 => unavailable(format!(
            "the endpoint knows no such path or model (HTTP 404); \
             check reasoners.{name}.base_url and model{}",
            words(response, redactor)
        )),
        300..=399 => unavailable(format!(
            "the endpoint redirects (HTTP {status}), which is not followed; \
             check reasoners.{name}.base_url"
        )),
        408 | 429 | 500..=599 => {
            let fault = unavailable(format!("HTTP {status}{}", words(response, redactor)));
            match response.retry_after_ms {
                Some(ms) => fault.retry_after_ms(ms.min(RETRY_AFTER_MS_MAX)),
                None => fault,
            }
        }
        _ => unavailable(format!(
            "the endpoint refuses the request (HTTP {status}){}",
            words(response, redactor)
        )),
    }
}

/// The fault where there is no response.
pub(crate) fn unreachable(name: &str, e: &HttpError) -> Fault {
    let what = match e {
        HttpError::TooLarge { max, .. } => {
            let message = format!("{name}: an answer of more than {max} bytes");
            return Fault::new(Code::ModelMalformed, message).at("/");
        }
        HttpError::InvalidHeader { .. } | HttpError::InvalidUrl { .. } => {
            format!("{e}; check reasoners.{name}")
        }
        _ => e.to_string(),
    };
    Fault::new(Code::ModelUnavailable, format!("{name}: {what}"))
}

/// The endpoint's own words, where it has any.
fn words(response: &HttpResponse, redactor: &Redactor) -> String {
    let Ok(body) = serde_json::from_slice::<Value>(&response.body) else {
        return String::new();
    };
    let places = ["/error/message", "/message", "/detail", "/error"];
    let mut found = places.iter().filter_map(|p| body.pointer(p)?.as_str());
    match found.next() {
        // Masked before it is cut: half a key is no known value any more.
        Some(text) => {
            let masked = redactor.text(text);
            format!(": {}", masked.chars().take(WORDS_MAX).collect::<String>())
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: &str, retry_after_ms: Option<u64>) -> HttpResponse {
        HttpResponse {
            status,
            headers: vec![],
            body: body.to_owned().into(),
            retry_after_ms,
        }
    }

    #[test]
    fn only_where_waiting_helps_is_there_a_time_to_try_again() {
        for (status, given, hint) in [
            (429, Some(1_000), Some(1_000)),
            (503, Some(86_400_000), Some(RETRY_AFTER_MS_MAX)),
            (500, None, None),
            (401, Some(1_000), None),
            (403, Some(1_000), None),
            (404, Some(1_000), None),
            (400, Some(1_000), None),
            (302, Some(1_000), None),
        ] {
            let fault = fault_of("big", &response(status, "{}", given), &Redactor::default());
            assert_eq!(fault.code, Code::ModelUnavailable, "{status}");
            assert_eq!(fault.retry_after_ms, hint, "{status}");
        }
    }

    #[test]
    fn a_refused_key_is_not_repeated_and_the_next_step_is_named() {
        let body = r#"{"error":{"message":"Incorrect API key provided: key-0123456789"}}"#;
        for status in [401, 403] {
            let fault = fault_of("big", &response(status, body, None), &Redactor::default());
            assert!(!fault.message.contains("key-0123"), "{fault}");
            assert!(
                fault.message.contains("reasoners.big.api_key_env"),
                "{fault}"
            );
        }
        let fault = fault_of("big", &response(404, "nothing", None), &Redactor::default());
        assert!(fault.message.contains("reasoners.big.base_url"), "{fault}");
    }

    #[test]
    fn a_repeated_key_is_masked_before_it_is_cut() {
        let key = "key-0123456789";
        let filler = "x".repeat(WORDS_MAX - 7);
        let body = format!(r#"{{"error":{{"message":"{filler}{key}"}}}}"#);
        let redactor = Redactor::new([key.to_owned()]);
        let fault = fault_of("big", &response(400, &body, None), &redactor);
        assert!(!fault.message.contains("key-"), "{fault}");
    }

    #[test]
    fn unsupported_structured_output_is_recognised() {
        let says = |body: &str| response(400, body, None);
        let unknown =
            r#"{"error":{"message":"Invalid parameter: 'response_format' of type 'json_schema'"}}"#;
        assert!(is_unsupported(Mode::JsonSchema, &says(unknown)));
        assert!(is_unsupported(Mode::JsonObject, &says(unknown)));
        assert!(!is_unsupported(Mode::Plain, &says(unknown)));
        assert!(!is_unsupported(Mode::JsonSchema, &says("context too long")));
        assert!(!is_unsupported(
            Mode::JsonSchema,
            &response(500, unknown, None)
        ));
    }
}
