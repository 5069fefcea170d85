//! Where a path in a probe's parameters is. Nothing is guessed: each kind of probe has
//! one default base, and a prefix names another.

use crate::probe::{ProbeContext, unavailable};
use detent_protocol::Fault;
use std::path::{Component, Path, PathBuf};

/// What a relative path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The goal's work directory, `work:`.
    Work,
    /// The node's data directory, `data:`.
    Data,
    /// The configuration's directory, `config:`.
    Config,
}

impl Base {
    fn split(text: &str) -> Option<(Self, &str)> {
        let bases = [
            ("work:", Self::Work),
            ("data:", Self::Data),
            ("config:", Self::Config),
        ];
        bases
            .into_iter()
            .find_map(|(prefix, base)| Some((base, text.strip_prefix(prefix)?)))
    }

    fn dir(self, cx: &ProbeContext) -> &Path {
        match self {
            Self::Work => &cx.work_dir,
            Self::Data => &cx.data_dir,
            Self::Config => &cx.config_dir,
        }
    }
}

/// A resolved path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Absolute.
    pub(crate) path: PathBuf,
    /// A directory that has to be there before "not there" is believed of the path: a
    /// base that is not mounted proves nothing.
    anchor: Option<PathBuf>,
}

impl Place {
    /// Fails where absence below this place would prove nothing. Blocking.
    pub(crate) fn check_anchor(&self) -> Result<(), Fault> {
        match &self.anchor {
            Some(dir) if !dir.is_dir() => Err(unavailable(format!(
                "the directory {} is not there",
                dir.display()
            ))),
            _ => Ok(()),
        }
    }
}

/// Resolves `text`; `default` is the base of a relative path that names none.
pub(crate) fn resolve(text: &str, default: Base, cx: &ProbeContext) -> Result<Place, Fault> {
    let (base, rest) = match Base::split(text) {
        Some((base, rest)) => (base, rest),
        None if Path::new(text).is_absolute() => {
            return Ok(Place {
                path: text.into(),
                anchor: None,
            });
        }
        None => (default, text),
    };
    let inside = |c| matches!(c, Component::Normal(_) | Component::CurDir);
    if rest.is_empty() || rest.contains('\0') || !Path::new(rest).components().all(inside) {
        let message = format!("the path {text:?} does not stay below its base");
        return Err(unavailable(message).at("/params"));
    }
    let anchor = match base {
        // Made with the goal's first tool; until then its parent stands for it.
        Base::Work => cx.work_dir.parent().map(Path::to_owned),
        Base::Data | Base::Config => Some(base.dir(cx).to_owned()),
    };
    Ok(Place {
        path: base.dir(cx).join(rest),
        anchor,
    })
}

/// An argument of a command: resolved where it names a base, otherwise as it is.
pub(crate) fn resolve_argument(text: &str, cx: &ProbeContext) -> Result<String, Fault> {
    let Some((base, _)) = Base::split(text) else {
        return Ok(text.to_owned());
    };
    let path = resolve(text, base, cx)?.path;
    path.into_os_string()
        .into_string()
        .map_err(|_| unavailable("a directory's name is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::{Code, GoalId};

    fn cx() -> ProbeContext {
        ProbeContext {
            goal: GoalId::from_bytes([1; 16]),
            step: "s".parse().unwrap(),
            work_dir: "/w/g1".into(),
            config_dir: "/c".into(),
            data_dir: "/d".into(),
            timeout_ms: 1,
        }
    }

    #[test]
    fn a_path_is_where_it_says() {
        for (text, base, path) in [
            ("a/b", Base::Work, "/w/g1/a/b"),
            ("./a", Base::Data, "/d/a"),
            ("config:a", Base::Work, "/c/a"),
            ("data:a", Base::Work, "/d/a"),
            ("work:a", Base::Data, "/w/g1/a"),
            ("/etc/hosts", Base::Data, "/etc/hosts"),
            ("other:a", Base::Work, "/w/g1/other:a"),
        ] {
            let place = resolve(text, base, &cx()).unwrap();
            assert_eq!(place.path, Path::new(path), "{text}");
        }
    }

    #[test]
    fn a_relative_path_stays_below_its_base() {
        for text in [
            "",
            "../a",
            "a/../../b",
            "config:",
            "config:../a",
            "data:/etc/passwd",
            "a\0b",
        ] {
            let fault = resolve(text, Base::Work, &cx()).unwrap_err();
            assert_eq!(fault.code, Code::ObservationUnavailable, "{text:?}");
        }
    }

    #[test]
    fn only_arguments_with_a_base_are_paths() {
        let resolve = |text| resolve_argument(text, &cx());
        assert_eq!(resolve("config:p/x.py").unwrap(), "/c/p/x.py");
        assert_eq!(resolve("../x").unwrap(), "../x");
        assert_eq!(resolve("--all").unwrap(), "--all");
        assert!(resolve("config:../x").is_err());
    }
}
