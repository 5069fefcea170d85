//! What is checked whole: settings, each small enough, together all that is modelled.

use crate::decide::Rules;
use crate::fold::Effect;
use crate::model::Protocol;
use crate::state::Budget;

/// What one check explores.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// What the agent and its tool declare.
    pub rules: Rules,
    /// Faults and wishes.
    pub budget: Budget,
    /// A later plan may want other arguments.
    pub other_args: bool,
    /// Checks in each state that the goal ends once faults stop.
    pub quiet: bool,
    /// States that differ in nothing which can matter any more are made the same.
    pub reduced: bool,
}

impl Setting {
    /// The model of it.
    pub fn model(&self) -> Protocol {
        Protocol::new(self)
    }
}

/// A setting with a name and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Configuration {
    /// Its name.
    pub name: &'static str,
    /// The setting.
    pub setting: Setting,
    /// States it has: any change of a rule shows here.
    pub states: usize,
    /// Ways to end, or to get there, that it has to have, by their places in
    /// [`crate::model::GOALS`].
    pub reaches: &'static [usize],
}

const NONE: Budget = Budget {
    crash: 0,
    zombie: 0,
    lose: 0,
    dup: 0,
    early: 0,
    lie: 0,
    tool: 0,
    cancel: 0,
    amend: 0,
    deadline: 0,
    restore: 0,
};

/// One fault of each kind.
const EACH: Budget = Budget {
    crash: 1,
    zombie: 1,
    lose: 1,
    dup: 1,
    early: 1,
    lie: 1,
    tool: 1,
    ..NONE
};

/// A cancel, and every fault but those of the tool.
const CANCEL: Budget = Budget {
    tool: 0,
    cancel: 1,
    ..EACH
};

/// An amendment, and every fault but those of the journal and doubled messages.
const AMEND: Budget = Budget {
    dup: 0,
    lie: 0,
    amend: 1,
    ..EACH
};

/// A back-up that is put back.
const RESTORE: Budget = Budget {
    crash: 1,
    zombie: 1,
    early: 1,
    tool: 1,
    restore: 1,
    ..NONE
};

/// A cancel of what is taken back then.
const UNDO: Budget = Budget {
    lose: 0,
    dup: 0,
    cancel: 1,
    ..EACH
};

/// What can keep a goal from its end.
const QUIET: Budget = Budget {
    crash: 1,
    early: 1,
    lie: 1,
    cancel: 1,
    amend: 1,
    ..NONE
};

/// A goal that is cancelled or late after a restore.
const RESTORE_CLOSED: Budget = Budget {
    early: 1,
    tool: 1,
    cancel: 1,
    restore: 1,
    ..NONE
};

/// A deadline, with everything that waits for a person.
const DEADLINE: Budget = Budget {
    lose: 1,
    early: 1,
    lie: 1,
    crash: 1,
    deadline: 1,
    cancel: 1,
    ..NONE
};

const READ: Rules = rules(Effect::Read, false);
const IDEMPOTENT: Rules = rules(Effect::Idempotent, true);
const IDEMPOTENT_ASKS: Rules = rules(Effect::Idempotent, false);
const FENCED: Rules = rules(Effect::Fenced, true);
const ONCE: Rules = rules(Effect::Once, true);
const ONCE_ASKS: Rules = rules(Effect::Once, false);

const fn rules(effect: Effect, settles: bool) -> Rules {
    Rules {
        effect,
        settles,
        tries_max: 2,
        replans_max: 0,
        undo: false,
        bug: None,
    }
}

const fn plain(
    name: &'static str,
    rules: Rules,
    budget: Budget,
    states: usize,
    reaches: &'static [usize],
) -> Configuration {
    Configuration {
        name,
        setting: Setting {
            rules,
            budget,
            other_args: false,
            quiet: false,
            reduced: true,
        },
        states,
        reaches,
    }
}

/// The same, with new plans after a failure, which may want other arguments.
const fn replanned(c: Configuration) -> Configuration {
    Configuration {
        setting: Setting {
            rules: Rules {
                replans_max: 1,
                ..c.setting.rules
            },
            other_args: true,
            ..c.setting
        },
        ..c
    }
}

/// The same, with a tool that has an undo.
const fn undone(c: Configuration) -> Configuration {
    Configuration {
        setting: Setting {
            rules: Rules {
                undo: true,
                ..c.setting.rules
            },
            ..c.setting
        },
        ..c
    }
}

/// The same, and each state has to lead to an end when no more faults come.
const fn quiet(c: Configuration) -> Configuration {
    Configuration {
        setting: Setting {
            quiet: true,
            ..c.setting
        },
        ..c
    }
}

/// Ends of a goal that meets faults alone.
const FAULTS: &[usize] = &[0, 1, 4, 5, 10];
const FAULTS_ASK: &[usize] = &[0, 1, 2, 4, 5, 6, 10];

/// All of them.
pub const ALL: &[Configuration] = &[
    plain("faults: read", READ, EACH, 231_239, FAULTS),
    plain(
        "faults: idempotent",
        IDEMPOTENT,
        EACH,
        1_628_151,
        FAULTS_ASK,
    ),
    plain("faults: fenced", FENCED, EACH, 1_726_504, FAULTS_ASK),
    plain("faults: once, settling", ONCE, EACH, 1_136_185, FAULTS_ASK),
    plain(
        "faults: once, asking",
        ONCE_ASKS,
        EACH,
        2_127_389,
        FAULTS_ASK,
    ),
    plain("cancel: read", READ, CANCEL, 783_425, &[0, 3, 4, 5]),
    plain(
        "cancel: idempotent",
        IDEMPOTENT,
        CANCEL,
        2_038_468,
        &[0, 3, 4, 5],
    ),
    plain(
        "cancel: idempotent, asking",
        IDEMPOTENT_ASKS,
        CANCEL,
        3_170_454,
        &[0, 2, 3, 4, 5, 6],
    ),
    plain("cancel: fenced", FENCED, CANCEL, 2_185_420, &[0, 3, 4, 5]),
    plain(
        "cancel: once, settling",
        ONCE,
        CANCEL,
        1_452_861,
        &[0, 3, 4, 5],
    ),
    plain(
        "cancel: once, asking",
        ONCE_ASKS,
        CANCEL,
        2_178_302,
        &[0, 2, 3, 4, 5, 6],
    ),
    replanned(plain(
        "amend: idempotent",
        IDEMPOTENT,
        AMEND,
        1_718_273,
        &[0, 1, 2, 5, 7, 8],
    )),
    replanned(plain(
        "amend: fenced",
        FENCED,
        AMEND,
        1_817_130,
        &[0, 1, 2, 5, 7, 8],
    )),
    replanned(plain(
        "amend: once, settling",
        ONCE,
        AMEND,
        1_305_366,
        &[0, 1, 2, 5, 7, 8],
    )),
    replanned(plain(
        "amend: once, asking",
        ONCE_ASKS,
        AMEND,
        938_740,
        &[0, 1, 2, 5, 6, 7, 8],
    )),
    undone(plain(
        "undo: idempotent",
        IDEMPOTENT,
        UNDO,
        3_442_113,
        &[0, 3, 9],
    )),
    undone(plain(
        "undo: once, settling",
        ONCE,
        UNDO,
        2_208_171,
        &[0, 3, 9],
    )),
    undone(plain(
        "undo: once, asking",
        ONCE_ASKS,
        UNDO,
        2_981_715,
        &[0, 3, 9],
    )),
    plain(
        "deadline: once, asking",
        ONCE_ASKS,
        DEADLINE,
        537_771,
        &[0, 1, 2, 3, 6],
    ),
    plain(
        "restore: idempotent",
        IDEMPOTENT,
        RESTORE,
        1_532_229,
        &[0, 1, 11],
    ),
    plain("restore: fenced", FENCED, RESTORE, 1_702_148, &[0, 1, 11]),
    plain(
        "restore: once, settling",
        ONCE,
        RESTORE,
        1_332_912,
        &[0, 1, 11],
    ),
    plain(
        "restore: once, asking",
        ONCE_ASKS,
        RESTORE,
        6_078_255,
        &[0, 1, 2, 6, 11],
    ),
    plain(
        "restore, cancel: once",
        ONCE,
        RESTORE_CLOSED,
        257_141,
        &[0, 3, 11],
    ),
    quiet(replanned(plain(
        "quiet: read",
        READ,
        QUIET,
        346_774,
        &[0, 3],
    ))),
    quiet(replanned(plain(
        "quiet: idempotent",
        IDEMPOTENT,
        QUIET,
        828_623,
        &[0, 3],
    ))),
    quiet(replanned(plain(
        "quiet: fenced",
        FENCED,
        QUIET,
        858_021,
        &[0, 3],
    ))),
    quiet(replanned(plain(
        "quiet: once, settling",
        ONCE,
        QUIET,
        689_166,
        &[0, 3],
    ))),
    quiet(replanned(plain(
        "quiet: once, asking",
        ONCE_ASKS,
        QUIET,
        729_536,
        &[0, 2, 3, 6],
    ))),
];
