//! A bounded snapshot of a goal in, the next plan out.
//!
//! | provider | what it is |
//! |---|---|
//! | `playbook` | a plan template that a person wrote, instantiated; always there |
//! | `openai` | any endpoint that speaks the OpenAI chat completions protocol |
//!
//! Promises: a prompt is bounded and always holds the goal with its amendments whole;
//! an answer is one JSON object or a fault; no key stands in a fault or a log; one
//! request makes one call of the model (but for finding out, once, how the endpoint
//! takes structured output): whoever asks is the only one who retries.
//!
//! Must never know: whether a plan is any good. What comes out of here is not
//! believed; the orchestrator checks it. Nor a journal, a tool or a probe.

pub mod error;
mod key;
pub mod openai;
pub mod options;
pub mod playbook;
pub mod provider;
pub mod prune;
mod service;

pub use error::ReasonerError;
pub use openai::Openai;
pub use options::{OpenaiConfig, ProviderConfig, ReasonerOptions, Structured};
pub use playbook::Playbook;
pub use provider::Provider;
pub use service::{Reasoner, ReasonerHandle};
