//! Frames: u32 BE length of what follows, then msgpack with field names.

use super::SOCKET_MESSAGE_BYTES_MAX;
use crate::BusError;
use bytes::Bytes;
use detent_protocol::envelope::from_msgpack;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Largest frame without its length, bytes: a message with its subject and field names.
pub(crate) const FRAME_BYTES_MAX: usize = SOCKET_MESSAGE_BYTES_MAX + 4096;

/// Id of what concerns the whole connection; requests count from 1.
pub(crate) const CONNECTION: u64 = 0;

/// Client to server.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Chosen by the client, unique among its requests in flight.
    pub(crate) id: u64,
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
    pub(crate) timeout_ms: u64,
}

/// Server to client, in any order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) result: Outcome,
}

/// A `Result<Bytes, BusError>` on the wire.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok(Bytes),
    NoResponders(String),
    Timeout { subject: String, timeout_ms: u64 },
    TooLarge { bytes: usize, max: usize },
    Busy(String),
    Closed,
    Denied(String),
}

impl From<std::result::Result<Bytes, BusError>> for Outcome {
    fn from(result: std::result::Result<Bytes, BusError>) -> Self {
        match result {
            Ok(payload) => Outcome::Ok(payload),
            Err(BusError::NoResponders(subject)) => Outcome::NoResponders(subject),
            Err(BusError::Timeout {
                subject,
                timeout_ms,
            }) => Outcome::Timeout {
                subject,
                timeout_ms,
            },
            Err(BusError::TooLarge { bytes, max }) => Outcome::TooLarge { bytes, max },
            Err(BusError::Busy(subject)) => Outcome::Busy(subject),
            Err(BusError::Closed) => Outcome::Closed,
            Err(BusError::Denied(text)) => Outcome::Denied(text),
        }
    }
}

impl From<Outcome> for std::result::Result<Bytes, BusError> {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok(payload) => Ok(payload),
            Outcome::NoResponders(subject) => Err(BusError::NoResponders(subject)),
            Outcome::Timeout {
                subject,
                timeout_ms,
            } => Err(BusError::Timeout {
                subject,
                timeout_ms,
            }),
            Outcome::TooLarge { bytes, max } => Err(BusError::TooLarge { bytes, max }),
            Outcome::Busy(subject) => Err(BusError::Busy(subject)),
            Outcome::Closed => Err(BusError::Closed),
            Outcome::Denied(text) => Err(BusError::Denied(text)),
        }
    }
}

/// A whole frame.
///
/// # Errors
/// [`BusError::TooLarge`] beyond [`FRAME_BYTES_MAX`].
pub(crate) fn encode<T: Serialize>(value: &T) -> std::result::Result<Vec<u8>, BusError> {
    let mut frame = vec![0; size_of::<u32>()];
    // Writing plain structs into memory has no way to fail.
    rmp_serde::encode::write_named(&mut frame, value).map_err(|_| BusError::Closed)?;
    let (bytes, max) = (frame.len() - size_of::<u32>(), FRAME_BYTES_MAX);
    if bytes > max {
        return Err(BusError::TooLarge { bytes, max });
    }
    // Fits: the bound is far below 4 GiB.
    frame[..size_of::<u32>()].copy_from_slice(&(bytes as u32).to_be_bytes());
    Ok(frame)
}

/// The frame of an answer; one that does not fit becomes the error that says so.
pub(crate) fn answer(id: u64, result: std::result::Result<Bytes, BusError>) -> Vec<u8> {
    let encoded = |result: std::result::Result<Bytes, BusError>| {
        encode(&Answer {
            id,
            result: result.into(),
        })
    };
    let encode_error = |error| encoded(Err(error)).unwrap_or_default();
    match result {
        Ok(payload) if payload.len() > SOCKET_MESSAGE_BYTES_MAX => {
            encode_error(BusError::TooLarge {
                bytes: payload.len(),
                max: SOCKET_MESSAGE_BYTES_MAX,
            })
        }
        result => encoded(result).unwrap_or_else(encode_error),
    }
}

/// Waits for a frame's first byte; `None` where the other side is done.
pub(crate) async fn first_byte(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<u8>> {
    let mut first = [0];
    Ok((from.read(&mut first).await? == 1).then_some(first[0]))
}

/// The length of a frame whose first byte was read; not yet checked.
pub(crate) async fn length(from: &mut (impl AsyncRead + Unpin), first: u8) -> Result<usize> {
    let mut length = [first, 0, 0, 0];
    from.read_exact(&mut length[1..]).await?;
    Ok(u32::from_be_bytes(length) as usize)
}

/// A frame's `length` bytes, decoded. Memory grows as they come, whatever was announced.
pub(crate) async fn body<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> Result<T> {
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    from_msgpack(&body).map_err(|fault| Error::new(ErrorKind::InvalidData, fault))
}

#[cfg(test)]
mod unit {
    use super::*;

    async fn decoded(frame: &[u8]) -> Answer {
        let mut from = frame;
        let first = first_byte(&mut from).await.unwrap().unwrap();
        let length = length(&mut from, first).await.unwrap();
        body(&mut from, length).await.unwrap()
    }

    #[tokio::test]
    async fn every_result_round_trips() {
        let results = [
            Ok(Bytes::from_static(b"\0\xff")),
            Err(BusError::NoResponders("s".into())),
            Err(BusError::Timeout {
                subject: "s".into(),
                timeout_ms: 5,
            }),
            Err(BusError::TooLarge { bytes: 2, max: 1 }),
            Err(BusError::Busy("s".into())),
            Err(BusError::Closed),
            Err(BusError::Denied("s".into())),
        ];
        for result in results {
            let got = decoded(&answer(7, result.clone())).await;
            assert_eq!(got.id, 7);
            assert_eq!(std::result::Result::from(got.result), result);
        }
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_says_so() {
        let large = Bytes::from(vec![0; SOCKET_MESSAGE_BYTES_MAX + 1]);
        let got = decoded(&answer(1, Ok(large))).await;
        assert!(matches!(got.result, Outcome::TooLarge { .. }));
        let largest = Bytes::from(vec![0; SOCKET_MESSAGE_BYTES_MAX]);
        let got = decoded(&answer(1, Ok(largest.clone()))).await;
        assert_eq!(got.result, Outcome::Ok(largest));
    }
}
