//! Where the nats-server program is.

use detent_protocol::{Code, Fault};
use std::path::{Path, PathBuf};

/// Names the program where neither an argument nor `PATH` does.
const VARIABLE: &str = "DETENT_NATS_SERVER";
const PROGRAM: &str = "nats-server";

/// Finds the program: `wish` where one is given, else what the environment variable
/// `DETENT_NATS_SERVER` names, else `nats-server` in `PATH`. A debug build also looks
/// where `cargo xtask setup` puts it.
///
/// # Errors
/// `CONFIG_INVALID` where what is named is no program, or nothing is found.
pub fn find_server(wish: Option<&Path>) -> Result<PathBuf, Fault> {
    let named = wish.map(Path::to_path_buf);
    let named = named.or_else(|| {
        let value = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    });
    if let Some(path) = named {
        if is_program(&path) {
            return Ok(path);
        }
        let text = format!("{} is no program that can be run; {HOW}", path.display());
        return Err(Fault::new(Code::ConfigInvalid, text));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(PROGRAM));
    if let Some(found) = places.find(|place| is_program(place)) {
        return Ok(found);
    }
    // Not in a release: it would look into a folder of the machine it was built on.
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/nats-server");
    if cfg!(debug_assertions) && is_program(&built) {
        return Ok(built);
    }
    let text = format!("no nats-server was found; {HOW}");
    Err(Fault::new(Code::ConfigInvalid, text))
}

const HOW: &str = "install nats-server 2.12 or newer, or name it with DETENT_NATS_SERVER \
                   (in Detent's repository `cargo xtask setup` puts one into target/tools)";

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let data = std::fs::metadata(path);
    data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_must_be_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nats-server");
        std::fs::write(&file, "").unwrap();
        for path in [&file, &dir.path().to_path_buf(), &dir.path().join("none")] {
            let fault = find_server(Some(path)).unwrap_err();
            assert_eq!(fault.code, Code::ConfigInvalid);
            assert!(fault.message.contains("cargo xtask setup"), "{fault}");
        }
        let program = std::env::current_exe().unwrap();
        assert_eq!(find_server(Some(&program)), Ok(program));
    }
}
