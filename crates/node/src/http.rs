//! `/metrics`, `/healthz` and `/readyz`.

use crate::metrics::{Metrics, Sampled};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use detent_protocol::{Code, Fault};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the pages show.
pub(crate) trait Status: Send + Sync + 'static {
    /// Values for `/metrics`.
    fn sampled(&self) -> Sampled;
    /// Why the node takes no goals, if it does not.
    fn not_ready(&self) -> Option<String>;
}

/// A running server; it ends when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn serve(
    listen: &str,
    metrics: Metrics,
    status: Arc<dyn Status>,
) -> Result<Server, Fault> {
    let listener = TcpListener::bind(listen).await.map_err(|e| {
        let taken = e.kind() == std::io::ErrorKind::AddrInUse;
        let code = if taken {
            Code::PortTaken
        } else {
            Code::ConfigInvalid
        };
        Fault::new(code, format!("{listen}: {e}")).at("node.http_listen")
    })?;
    let local = listener.local_addr();
    let address = local.map_err(|e| Fault::new(Code::ConfigInvalid, e.to_string()))?;
    let ready = status.clone();
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || async move { readyz(ready.as_ref()) }),
        )
        .route(
            "/metrics",
            get(move || async move { page(&metrics, status.as_ref()) }),
        );
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the HTTP server ended");
        }
    });
    Ok(Server { address, task })
}

fn readyz(status: &dyn Status) -> impl IntoResponse + use<> {
    match status.not_ready() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}\n"),
        ),
    }
}

fn page(metrics: &Metrics, status: &dyn Status) -> impl IntoResponse + use<> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(header::CONTENT_TYPE, kind)],
        metrics.render(status.sampled()),
    )
}
