//! Looks at a file.
//!
//! Parameters `{path, parse?: "none"|"text"|"json", bytes_max?}`; a relative `path` is
//! below the goal's work directory. Sees `{exists: false}`, or `{exists: true, bytes,
//! sha256, modified_ms}` and, as asked, `text` or `json`; where that can't be had,
//! `unparsed` says why. Size and hash are of the whole file, read once, so that all of
//! them belong together; `bytes_max` (default 1 MiB, at most 16 MiB) bounds only what is
//! parsed.
//!
//! A symbolic link is followed and told (`symlink: true`); one that leads nowhere is
//! `{exists: false}`. What is not a regular file is refused without being opened for
//! reading: a named pipe would block there, and opening some devices does something.

use crate::place::{Base, Place};
use crate::probe::{Look, Probe, ProbeContext, read_params, unavailable};
use async_trait::async_trait;
use detent_protocol::Fault;
use detent_protocol::json::Digest;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

const PARSE_BYTES_DEFAULT: usize = 1024 * 1024;
const PARSE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Read at a time, bytes; between two reads the clock is looked at.
const READ_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    path: String,
    #[serde(default)]
    parse: Parse,
    #[serde(default = "parse_bytes_default")]
    bytes_max: usize,
}

fn parse_bytes_default() -> usize {
    PARSE_BYTES_DEFAULT
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Parse {
    #[default]
    None,
    Text,
    Json,
}

/// Probe `file`.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileProbe;

impl FileProbe {
    /// A probe.
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl Probe for FileProbe {
    fn kind(&self) -> &str {
        "file"
    }

    async fn look(&self, params: &Value, cx: &ProbeContext) -> Result<Look, Fault> {
        let params: Params = read_params(params)?;
        if params.bytes_max > PARSE_BYTES_MAX {
            let message = format!("bytes_max must be at most {PARSE_BYTES_MAX}");
            return Err(unavailable(message).at("/params/bytes_max"));
        }
        let place = cx.place(&params.path, Base::Work)?;
        let until = Until::after_ms(cx.timeout_ms);
        let _stop = StopOnDrop(Arc::clone(&until.stopped));
        tokio::task::spawn_blocking(move || look(&params, &place, &until))
            .await
            .unwrap_or_else(|_| Err(unavailable("the look was broken off")))
    }
}

/// When reading has to end. Dropping the look ends it, too.
struct Until {
    at: Instant,
    timeout_ms: u64,
    stopped: Arc<AtomicBool>,
}

impl Until {
    fn after_ms(timeout_ms: u64) -> Self {
        Self {
            at: Instant::now() + Duration::from_millis(timeout_ms),
            timeout_ms,
            stopped: Arc::default(),
        }
    }

    fn check(&self) -> Result<(), Fault> {
        if self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.at {
            let message = format!("the file was not read within {} ms", self.timeout_ms);
            return Err(unavailable(message));
        }
        Ok(())
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn look(params: &Params, place: &Place, until: &Until) -> Result<Look, Fault> {
    until.check()?;
    let link = std::fs::read_link(&place.path).ok();
    let mut what = place.path.display().to_string();
    if let Some(aim) = &link {
        what = format!("{what} -> {}", aim.display());
    }
    let Some(file) = open(&place.path)? else {
        place.check_anchor()?;
        return Ok(Look::new(what, json!({"exists": false})));
    };
    let content = read(file, params, until)?;
    let mut seen = content.seen(params);
    if link.is_some() {
        seen["symlink"] = true.into();
    }
    Ok(Look::new(what, seen))
}

/// The file for reading, `None` where there is none.
fn open(path: &Path) -> Result<Option<File>, Fault> {
    let cant = |e: std::io::Error| unavailable(format!("can't open {}: {e}", path.display()));
    // Names the file without opening it, so that it can be asked what it is.
    let handle = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(cant(e.into())),
    };
    let stat = rustix::fs::fstat(&handle).map_err(|e| cant(e.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => reopen(&handle).map(Some).map_err(cant),
        other => {
            let kind = kind_name(other);
            let message = format!("{} is {kind}, not a regular file", path.display());
            Err(unavailable(message))
        }
    }
}

/// Opens the very file that the handle names, whatever stands at its path by now.
fn reopen(handle: &OwnedFd) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }
}

struct Content {
    bytes: u64,
    sha256: Digest,
    modified_ms: u64,
    /// The beginning, one byte more than may be parsed at most.
    head: Vec<u8>,
}

fn read(mut file: File, params: &Params, until: &Until) -> Result<Content, Fault> {
    let cant = |e: std::io::Error| unavailable(format!("can't read {}: {e}", params.path));
    let head_max = match params.parse {
        Parse::None => 0,
        Parse::Text | Parse::Json => params.bytes_max + 1,
    };
    let (mut hash, mut bytes, mut head) = (Sha256::new(), 0, Vec::new());
    let mut piece = vec![0; READ_BYTES];
    loop {
        until.check()?;
        let n = match file.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(cant(e)),
        };
        hash.update(&piece[..n]);
        bytes += n as u64;
        let room = head_max - head.len();
        head.extend_from_slice(&piece[..n.min(room)]);
    }
    let modified = file.metadata().and_then(|m| m.modified()).map_err(cant)?;
    // Before 1970 counts as 1970.
    let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Content {
        bytes,
        sha256: Digest(hash.finalize().into()),
        modified_ms: u64::try_from(modified.as_millis()).unwrap_or(u64::MAX),
        head,
    })
}

impl Content {
    fn seen(&self, params: &Params) -> Value {
        let mut seen = json!({
            "exists": true,
            "bytes": self.bytes,
            "sha256": self.sha256.to_string(),
            "modified_ms": self.modified_ms,
        });
        let (key, parsed) = match params.parse {
            Parse::None => return seen,
            Parse::Text => ("text", self.within(params).and_then(text)),
            Parse::Json => ("json", self.within(params).and_then(json)),
        };
        match parsed {
            Ok(value) => seen[key] = value,
            Err(why) => seen["unparsed"] = why.into(),
        }
        seen
    }

    fn within(&self, params: &Params) -> Result<&[u8], String> {
        match self.head.len() > params.bytes_max {
            true => Err(format!("larger than {} bytes", params.bytes_max)),
            false => Ok(&self.head),
        }
    }
}

fn text(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes);
    text.map(Value::from).map_err(|e| {
        let at = e.valid_up_to();
        format!("not UTF-8 at byte {at}")
    })
}

fn json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes)
        .map_err(|e| format!("not JSON at line {} column {}", e.line(), e.column()))
}
