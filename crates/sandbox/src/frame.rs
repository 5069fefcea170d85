//! The bytes between a caller and its keeper: a big-endian `u32` length, then
//! that many bytes of msgpack with named fields. Every length is checked
//! against a bound before memory is taken for it.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::clock::BootInstant;
use crate::error::SpawnError;
use crate::exit::Exit;
use crate::spec::{ARGS_BYTES_MAX, ProcessSpec, STDIN_BYTES_MAX};

/// Room for field names, the working directory and numbers in a frame.
const OVERHEAD_BYTES: usize = 64 * 1024;

/// Bound on the frame that carries a [`ProcessSpec`].
pub(crate) const SPEC_FRAME_BYTES_MAX: usize = STDIN_BYTES_MAX + ARGS_BYTES_MAX + OVERHEAD_BYTES;

/// What a keeper tells its caller: at most one `Started`, then exactly one of
/// the others.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The program is executing.
    Started { pid: u32, at: BootInstant },
    /// The tree is dead and reaped.
    Finished(Exit),
    /// There is no outcome; nothing of the tree is alive.
    Failed(SpawnError),
}

/// Bound on the frame that reports the end of this run.
pub(crate) fn report_frame_bytes_max(spec: &ProcessSpec) -> usize {
    let outputs = spec.limits.stdout_bytes_max + spec.limits.stderr_bytes_max;
    // An error names the program or the directory, which `OVERHEAD_BYTES` does
    // not cover when they are very long.
    let names = spec.program.len() + spec.cwd.as_os_str().len();
    usize::try_from(outputs)
        .unwrap_or(usize::MAX)
        .saturating_add(names + OVERHEAD_BYTES)
}

/// The complete frame of `message`.
pub(crate) fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write_named(&mut frame, message).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// A frame's content as a message; bytes after the message are an error.
fn decode<T: DeserializeOwned>(content: &[u8]) -> io::Result<T> {
    let mut rest = content;
    let mut reader = rmp_serde::Deserializer::new(&mut rest);
    let message = T::deserialize(&mut reader).map_err(io::Error::other)?;
    if rest.is_empty() {
        return Ok(message);
    }
    Err(io::Error::other("bytes after the end of a message"))
}

fn checked_length(prefix: [u8; 4], bytes_max: usize) -> io::Result<usize> {
    let length = u32::from_be_bytes(prefix) as usize;
    if length <= bytes_max {
        return Ok(length);
    }
    Err(io::Error::other("a frame is over its bound"))
}

/// Reads one message, blocking. The end of file is an
/// [`io::ErrorKind::UnexpectedEof`].
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read, bytes_max: usize) -> io::Result<T> {
    let mut prefix = [0; 4];
    from.read_exact(&mut prefix)?;
    let mut content = vec![0; checked_length(prefix, bytes_max)?];
    from.read_exact(&mut content)?;
    decode(&content)
}

/// Writes one message, blocking.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

/// Reads one message. Not cancel safe.
pub(crate) async fn read_async<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<T> {
    let mut prefix = [0; 4];
    from.read_exact(&mut prefix).await?;
    let mut content = vec![0; checked_length(prefix, bytes_max)?];
    from.read_exact(&mut content).await?;
    decode(&content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_trip() {
        let sent = Report::Failed(SpawnError::NotFound {
            program: "frobnicate".into(),
        });
        let bytes = encode(&sent).unwrap();
        let got: Report = read(&mut bytes.as_slice(), 1024).unwrap();
        assert_eq!(format!("{got:?}"), format!("{sent:?}"));
    }

    #[test]
    fn a_length_over_the_bound_is_refused_unread() {
        let bytes = u32::MAX.to_be_bytes();
        let got = read::<Report>(&mut bytes.as_slice(), 1024).unwrap_err();
        assert_eq!(got.kind(), io::ErrorKind::Other);
    }

    #[test]
    fn a_truncated_frame_is_an_end_of_file() {
        let mut bytes = encode(&"hello").unwrap();
        bytes.pop();
        let got = read::<String>(&mut bytes.as_slice(), 1024).unwrap_err();
        assert_eq!(got.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn bytes_after_the_message_are_refused() {
        let mut bytes = encode(&"hello").unwrap();
        bytes.push(0);
        bytes[3] += 1;
        assert!(read::<String>(&mut bytes.as_slice(), 1024).is_err());
    }
}
