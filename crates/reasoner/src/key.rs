//! Keys of model endpoints: where they come from, and that they are never shown.
//!
//! Promises: neither `Debug` nor any fault holds a key. Must never know: who it is
//! sent to.

use detent_protocol::{Code, Fault};
use std::fmt;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Longest key file, bytes.
const KEY_BYTES_MAX: u64 = 16 * 1024;

/// A secret that is sent as a bearer token.
#[derive(Clone)]
pub(crate) struct ApiKey(String);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([redacted])")
    }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::ConfigInvalid, message)
}

impl ApiKey {
    /// Reads a key from an environment variable.
    pub(crate) fn from_env(name: &str) -> Result<Self, Fault> {
        match std::env::var(name) {
            Ok(text) => Self::new(&text, &format!("environment variable {name}")),
            Err(std::env::VarError::NotPresent) => Err(invalid(format!(
                "environment variable {name} is not set; set it to the endpoint's key"
            ))),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(invalid(format!("environment variable {name} is not text")))
            }
        }
    }

    /// Reads a key from a file that only its owner can reach.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Fault> {
        let what = format!("key file {}", path.display());
        let wrong = |e: std::io::Error| invalid(format!("{what} can't be read: {e}"));
        let file = std::fs::File::open(path).map_err(wrong)?;
        // Asked of the open file: the name may lead elsewhere a moment later.
        let meta = file.metadata().map_err(wrong)?;
        if !meta.is_file() || meta.len() > KEY_BYTES_MAX {
            let message = format!("{what} is not a file of at most {KEY_BYTES_MAX} bytes");
            return Err(invalid(message));
        }
        if meta.mode() & 0o077 != 0 {
            let mode = meta.mode() & 0o777;
            return Err(invalid(format!(
                "{what} has mode {mode:03o}: others can reach it; chmod 600 it"
            )));
        }
        let mut text = String::new();
        file.take(KEY_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(wrong)?;
        Self::new(&text, &what)
    }

    fn new(text: &str, what: &str) -> Result<Self, Fault> {
        let key = text.trim();
        if key.is_empty() {
            return Err(invalid(format!("{what} is empty")));
        }
        if !key.bytes().all(|b| b.is_ascii_graphic()) {
            let message = format!("{what} is not one key: it holds spaces or control characters");
            return Err(invalid(message));
        }
        Ok(Self(key.to_owned()))
    }

    /// The key itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    const SECRET: &str = "key-0123456789";

    fn file(mode: u32, text: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), permissions).unwrap();
        file
    }

    #[test]
    fn a_key_file_is_read_trimmed_and_never_shown() {
        let file = file(0o600, format!("  {SECRET}\n").as_bytes());
        let key = ApiKey::from_file(file.path()).unwrap();
        assert_eq!(key.reveal(), SECRET);
        assert!(!format!("{key:?}").contains(SECRET));
    }

    #[test]
    fn a_key_file_that_others_can_reach_is_refused() {
        for mode in [0o640, 0o604, 0o644, 0o620, 0o666] {
            let file = file(mode, SECRET.as_bytes());
            let fault = ApiKey::from_file(file.path()).unwrap_err();
            assert_eq!(fault.code, Code::ConfigInvalid);
            assert!(fault.message.contains("chmod 600"), "{fault}");
            assert!(!fault.to_string().contains(SECRET));
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        let bad: [&[u8]; 5] = [b"", b" \n", b"key-01 23456", b"key-01\n23456", b"\xff\xfe"];
        for text in bad {
            let fault = ApiKey::from_file(file(0o600, text).path()).unwrap_err();
            assert_eq!(fault.code, Code::ConfigInvalid);
            assert!(!fault.message.contains("key-01"), "{fault}");
        }
        let large = vec![b'x'; KEY_BYTES_MAX as usize + 1];
        ApiKey::from_file(file(0o600, &large).path()).unwrap_err();
        ApiKey::from_file(Path::new("/")).unwrap_err();
        ApiKey::from_file(Path::new("/no/such/file")).unwrap_err();
    }

    #[test]
    fn a_missing_variable_is_named() {
        let fault = ApiKey::from_env("DETENT_TEST_KEY_NEVER_SET").unwrap_err();
        assert_eq!(fault.code, Code::ConfigInvalid);
        assert!(fault.message.contains("DETENT_TEST_KEY_NEVER_SET"));
    }
}
