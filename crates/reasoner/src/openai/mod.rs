//! Provider `openai`: any endpoint that speaks the OpenAI chat completions protocol.
//!
//! Promises: one call of the model for each request. The one exception is that an
//! endpoint which refuses a form of structured output is asked again in the next
//! plainer form, and that is remembered. The answer comes within the configured time;
//! the key stands in one header and nowhere else.
//!
//! Must never know: whether the plan is any good, and who tries again.

mod answer;
mod extract;
mod prompt;
mod refusal;
mod schema;

pub use schema::plan_schema;

use crate::key::ApiKey;
use crate::options::{OpenaiConfig, Structured};
use crate::provider::Provider;
use async_trait::async_trait;
use bytes::Bytes;
use detent_connect::http::{HttpClient, HttpMethod, HttpOptions, HttpRequest, HttpResponse};
use detent_protocol::json::size_bytes;
use detent_protocol::messages::{PlanAnswer, PlanRequest};
use detent_protocol::redact::Redactor;
use detent_protocol::{Code, Fault};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Largest answer, bytes: a plan is at most half a megabyte, escaped once more.
const RESPONSE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How an answer's form is asked for, from strict to plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    JsonSchema = 0,
    JsonObject = 1,
    Plain = 2,
}

impl Mode {
    fn of(n: u8) -> Self {
        match n {
            0 => Self::JsonSchema,
            1 => Self::JsonObject,
            _ => Self::Plain,
        }
    }
}

/// A model endpoint. See the [module](self).
#[derive(Debug)]
pub struct Openai {
    name: String,
    url: String,
    config: OpenaiConfig,
    key: Option<ApiKey>,
    /// Knows the key: an endpoint may repeat it in any text.
    redactor: Redactor,
    /// The strictest [`Mode`] that was not refused yet; only ever rises.
    mode: AtomicU8,
    http: HttpClient,
}

impl Openai {
    /// A provider called `name` (for texts). Reads the key now; connects nowhere yet.
    ///
    /// Fails with [`Code::ConfigInvalid`], placed at the key of the configuration,
    /// where the key can't be read or the client can't be made.
    pub fn new(name: &str, config: OpenaiConfig) -> Result<Self, Fault> {
        let place = |f: Fault, key: &str| f.at(format!("reasoners.{name}.{key}"));
        let key_from = match config.api_key_env {
            Some(_) => "api_key_env",
            None => "api_key_file",
        };
        let key = config.key().map_err(|f| place(f, key_from))?;
        let http = HttpClient::new(HttpOptions {
            timeout_ms: config.timeout_ms,
            response_bytes_max: RESPONSE_BYTES_MAX,
            ..HttpOptions::default()
        });
        let http = http.map_err(|e| {
            let fault = Fault::new(Code::ConfigInvalid, e.to_string());
            place(fault, "base_url")
        })?;
        let mode = match config.structured {
            Structured::Auto | Structured::JsonSchema => Mode::JsonSchema,
            Structured::JsonObject => Mode::JsonObject,
            Structured::None => Mode::Plain,
        };
        Ok(Self {
            name: name.to_owned(),
            url: format!("{}/chat/completions", config.base_url.trim_end_matches('/')),
            redactor: Redactor::new(key.iter().map(|k| k.reveal().to_owned())),
            key,
            config,
            mode: AtomicU8::new(mode as u8),
            http,
        })
    }

    async fn exchange(&self, request: &PlanRequest) -> Result<PlanAnswer, Fault> {
        let messages = prompt::messages(request, self.config.system.as_deref())?;
        loop {
            let mode = Mode::of(self.mode.load(Ordering::Relaxed));
            let body = self.body(request, &messages, mode);
            let response = self.send(&body).await?;
            if (200..=299).contains(&response.status) {
                return answer::read(&response.body, size_bytes(&messages));
            }
            // Ends: the mode rises with every turn, and the last is never unsupported.
            if !self.lowers(mode, &response) {
                return Err(refusal::fault_of(&self.name, &response, &self.redactor));
            }
        }
    }

    fn lowers(&self, mode: Mode, response: &HttpResponse) -> bool {
        let auto = self.config.structured == Structured::Auto;
        let lowers = auto && refusal::is_unsupported(mode, response);
        if lowers {
            let next = Mode::of(mode as u8 + 1);
            self.mode.fetch_max(next as u8, Ordering::Relaxed);
            tracing::info!(provider = self.name, from = ?mode, to = ?next, "structured output is not supported");
        }
        lowers
    }

    fn body(&self, request: &PlanRequest, messages: &Value, mode: Mode) -> Value {
        let mut body = json!({
            "model": self.config.model,
            "messages": messages,
            "max_tokens": self.config.tokens_max.min(request.tokens_max).max(1),
            "temperature": self.config.temperature,
        });
        match mode {
            Mode::JsonSchema => {
                let schema = plan_schema(&request.snapshot.tools);
                let named = json!({"name": "plan", "schema": schema});
                body["response_format"] = json!({"type": "json_schema", "json_schema": named});
            }
            Mode::JsonObject => body["response_format"] = json!({"type": "json_object"}),
            Mode::Plain => {}
        }
        body
    }

    async fn send(&self, body: &Value) -> Result<HttpResponse, Fault> {
        let mut request = HttpRequest::new(HttpMethod::Post, self.url.as_str());
        let header = |k: &str, v: String| (k.to_owned(), v);
        request
            .headers
            .push(header("content-type", "application/json".to_owned()));
        request
            .headers
            .push(header("accept", "application/json".to_owned()));
        if let Some(key) = &self.key {
            let bearer = format!("Bearer {}", key.reveal());
            request.headers.push(header("authorization", bearer));
        }
        request.body = Some(Bytes::from(body.to_string()));
        let sent = self.http.send(request).await;
        sent.map_err(|e| refusal::unreachable(&self.name, &e))
    }

    /// Whatever an endpoint says goes through here: it may repeat the key.
    fn redacted(&self, fault: Fault) -> Fault {
        Fault {
            message: self.redactor.text(&fault.message),
            ..fault
        }
    }
}

#[async_trait]
impl Provider for Openai {
    async fn plan(&self, request: &PlanRequest) -> Result<PlanAnswer, Fault> {
        // One deadline around all: finding out about structured output is part of it.
        let limit = Duration::from_millis(self.config.timeout_ms);
        let answer = match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let (name, ms) = (&self.name, self.config.timeout_ms);
                let message = format!("{name}: no complete answer within {ms} ms");
                Err(Fault::new(Code::ModelUnavailable, message))
            }
        };
        let mut answer = answer.map_err(|f| self.redacted(f))?;
        self.redactor.json(&mut answer.plan);
        Ok(answer)
    }
}
