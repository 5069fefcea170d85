//! An HTTP client with bounds on time and size.
//!
//! Promises: [`HttpClient::send`] returns within its deadline also when the server
//! drips one byte at a time; an answer over its bound is an error, not a cut answer;
//! redirects are handed to the caller, never followed; a proxy is used only where
//! the options name one, whatever the environment says.
//!
//! Must not know: what the answers mean.

mod client;
mod error;
mod message;
mod resolve;
mod retry_after;

pub use client::{HttpClient, HttpOptions};
pub use error::{HttpError, HttpSetupError};
pub use message::{HttpMethod, HttpRequest, HttpResponse, public_url};
pub use retry_after::{RETRY_AFTER_MS_MAX, retry_after_ms};
