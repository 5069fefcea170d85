//! The client.

use super::error::{HttpError, HttpSetupError, innermost};
use super::message::{HttpMethod, HttpRequest, HttpResponse};
use super::resolve::SystemResolver;
use super::retry_after::retry_after_ms;
use bytes::{Bytes, BytesMut};
use reqwest::Url;
use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Bounds of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// Longest wait for a connection with its TLS handshake, milliseconds.
    pub connect_timeout_ms: u64,
    /// Deadline over a whole call where the request has none, milliseconds.
    pub timeout_ms: u64,
    /// Largest body of a response, bytes.
    pub response_bytes_max: usize,
    /// Idle connections kept for each host.
    pub pool_idle_per_host_max: usize,
    /// How long an idle connection is kept, milliseconds.
    pub pool_idle_timeout_ms: u64,
    /// Proxy for every request. The environment's proxies are never used.
    pub proxy: Option<String>,
    /// `User-Agent` header.
    pub user_agent: String,
}

impl Default for HttpOptions {
    /// 5 s to connect, 30 s in all, 4 MiB of answer, 8 idle connections for 30 s.
    fn default() -> Self {
        Self {
            connect_timeout_ms: 5_000,
            timeout_ms: 30_000,
            response_bytes_max: 4 * 1024 * 1024,
            pool_idle_per_host_max: 8,
            pool_idle_timeout_ms: 30_000,
            proxy: None,
            user_agent: concat!("detent/", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// Sends requests. Clones share one pool of connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: reqwest::Client,
    options: Arc<HttpOptions>,
}

impl HttpClient {
    /// A client with these bounds. Connects nowhere yet.
    ///
    /// # Errors
    /// [`HttpSetupError`] where the proxy's address or the system's certificates can't
    /// be used.
    pub fn new(options: HttpOptions) -> Result<Self, HttpSetupError> {
        let ms = Duration::from_millis;
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .dns_resolver(Arc::new(SystemResolver))
            .connect_timeout(ms(options.connect_timeout_ms))
            .pool_max_idle_per_host(options.pool_idle_per_host_max)
            .pool_idle_timeout(ms(options.pool_idle_timeout_ms))
            .user_agent(&options.user_agent);
        if let Some(proxy) = &options.proxy {
            let proxy = reqwest::Proxy::all(proxy).map_err(|_| HttpSetupError::Proxy)?;
            builder = builder.proxy(proxy);
        }
        let client = builder.build().map_err(|e| HttpSetupError::Client {
            what: innermost(&e),
        })?;
        Ok(Self {
            client,
            options: Arc::new(options),
        })
    }

    /// The bounds it was made with.
    pub fn options(&self) -> &HttpOptions {
        &self.options
    }

    /// Sends one request and reads the whole answer. Any status is an `Ok`.
    ///
    /// # Errors
    /// [`HttpError`]; see [`HttpError::not_sent`] for whether the server may have acted.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let timeout_ms = request.timeout_ms.unwrap_or(self.options.timeout_ms);
        let url = parse_url(&request.url)?;
        let host = authority(&url);
        let call = self.exchange(request, url, &host);
        // One deadline around everything: the library's own starts anew in places.
        match tokio::time::timeout(Duration::from_millis(timeout_ms), call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HttpError::Timeout { host, timeout_ms }),
        }
    }

    async fn exchange(
        &self,
        request: HttpRequest,
        url: Url,
        host: &str,
    ) -> Result<HttpResponse, HttpError> {
        let mut builder = self
            .client
            .request(request.method.to_reqwest(), url)
            .headers(header_map(&request.headers)?);
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let response = builder.send().await.map_err(|e| self.sort(&e, host))?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = match request.method {
            HttpMethod::Head => Bytes::new(),
            _ => self.body(response, host).await?,
        };
        Ok(HttpResponse {
            status,
            retry_after_ms: wait_of(&headers),
            headers: texts(&headers),
            body,
        })
    }

    /// Reads the body piece by piece and stops at the bound: an announced length may
    /// be a lie, and there may be none.
    async fn body(&self, mut response: reqwest::Response, host: &str) -> Result<Bytes, HttpError> {
        let max = self.options.response_bytes_max;
        let too_large = || HttpError::TooLarge {
            host: host.to_owned(),
            max,
        };
        if response.content_length().is_some_and(|n| n > max as u64) {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(piece) = response.chunk().await.map_err(|e| self.sort(&e, host))? {
            if body.len() + piece.len() > max {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    }

    fn sort(&self, error: &reqwest::Error, host: &str) -> HttpError {
        HttpError::sort(error, host, self.options.connect_timeout_ms)
    }
}

fn parse_url(text: &str) -> Result<Url, HttpError> {
    let refuse = |what: String| HttpError::InvalidUrl { what };
    let url = Url::parse(text).map_err(|e| refuse(e.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("the scheme is neither http nor https".into()));
    }
    Ok(url)
}

/// Host and port, for error texts.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, HttpError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let refuse = || HttpError::InvalidHeader { name: name.clone() };
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| refuse())?;
        // Keeps it out of the library's own debug output.
        value.set_sensitive(true);
        map.try_append(parsed, value).map_err(|_| refuse())?;
    }
    Ok(map)
}

fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |v: &HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
    let pair = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), text(value));
    headers.iter().map(pair).collect()
}

fn wait_of(headers: &HeaderMap) -> Option<u64> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
    retry_after_ms(text(RETRY_AFTER)?, text(DATE), SystemTime::now())
}
