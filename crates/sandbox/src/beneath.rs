//! Reading what a sandboxed program left in its working directory, while it may still be
//! changing it. It promises that what is read lies in that directory and is a plain file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// Reads a file below `directory`, at most `bytes_max` of it.
///
/// Links are followed nowhere on the way, a path that leaves the directory or crosses into
/// another mount is refused, and so is everything but a plain file: a pipe would block, a
/// device could do anything.
///
/// # Errors
/// The system's: `ELOOP` for a link, `EXDEV` for a way out, `EINVAL` for no plain file,
/// `EFBIG` for one that is larger.
pub fn read_beneath(directory: &Path, relative: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let file = rustix::fs::openat2(&directory, relative, flags, Mode::empty(), strict)?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(rustix::io::Errno::INVAL.into());
    }
    let mut bytes = Vec::new();
    File::from(file)
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(rustix::io::Errno::FBIG.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    fn errno(directory: &Path, relative: &str) -> Option<i32> {
        let read = read_beneath(directory, Path::new(relative), 10);
        read.unwrap_err().raw_os_error()
    }

    #[test]
    fn only_a_plain_file_inside_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        std::fs::create_dir(at.join("in")).unwrap();
        std::fs::write(at.join("in/a"), b"0123456789").unwrap();
        std::fs::write(at.join("in/b"), b"0123456789x").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", at.join("in/link")).unwrap();
        std::os::unix::fs::symlink("in", at.join("dirlink")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at.join("in/fifo"), FileType::Fifo, mode, 0).unwrap();

        assert_eq!(
            read_beneath(at, Path::new("in/a"), 10).unwrap(),
            b"0123456789"
        );
        let raw = |errno: Errno| Some(errno.raw_os_error());
        assert_eq!(errno(at, "in/b"), raw(Errno::FBIG));
        assert_eq!(errno(at, "in/link"), raw(Errno::LOOP));
        assert_eq!(errno(at, "dirlink/a"), raw(Errno::LOOP));
        assert_eq!(errno(&at.join("in"), "../in/a"), raw(Errno::XDEV));
        assert_eq!(errno(at, "/etc/hostname"), raw(Errno::XDEV));
        assert_eq!(errno(at, "in"), raw(Errno::INVAL));
        assert_eq!(errno(at, "in/fifo"), raw(Errno::INVAL));
    }
}
