//! Which request is legal in which phase: no clock, no I/O (contract: control-plane, section 5).
//!
//! ```text
//!  Snapshotting      .------ resume fails -------.
//!    |  ^            v                           |
//!    v  |  .--> Pausing --> Paused --> Resuming -'
//!   Running      ^   |        | |        |   |
//!    |   ^       |   '--------|-|--------|---|--> Stopping --> Gone
//!    |   '-------|------------|-|--------'   |       ^
//!    |           '------------' '------------|-------|
//!    '-------------------------------------- | ------'
//! ```
//! A pause keeps memory or only files, and so does the way back: what was paused with its memory can be started from its
//! files. From outside, Pausing is paused, Resuming and Snapshotting are running, Stopping is not there. Processes that end
//! by themselves lead to Stopping while they run, and to a pause that keeps only files while they are frozen: that one has
//! nothing left that could end.

use std::time::Duration;

use jiff::Timestamp;

/// What a pause keeps, and what a resume starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Processes, and so everything.
    Memory,
    /// What is on disk.
    Files,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its processes run.
    Running,
    /// They run, but for the moment in which their files are copied.
    Snapshotting,
    /// They are being frozen, or ended.
    Pausing(Keep),
    /// They are frozen, or gone.
    Paused(Keep),
    /// They are being thawed, or started.
    Resuming(Keep),
    /// Everything of it is being removed.
    Stopping,
    /// Nothing of it is left.
    Gone,
}

/// What may be asked of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Stop it so that it can go on.
    Pause(Keep),
    /// Let it go on; running is an error.
    Resume(Keep),
    /// Make sure that it runs, for at least some time.
    Connect(Keep),
    /// Traffic arrived that may wake it.
    Wake,
    /// Remove it.
    Kill,
    /// Set its end.
    SetTimeout,
    /// Move its end later.
    Refresh,
    /// Replace what it may reach.
    SetNetwork,
    /// Keep its files as they are.
    Snapshot,
    /// The same, for sandboxes that begin with them at once.
    Fork,
}

/// A change of phase that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Running to Paused.
    Pause(Keep),
    /// Paused to Running.
    Resume(Keep),
    /// Running to Running.
    Snapshot,
    /// To Gone.
    Stop,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start this change and answer when it has ended.
    Begin(Transition),
    /// Answer with the outcome of the change under way.
    Join,
    /// Ask again when the change under way has ended.
    Wait,
    /// No change of phase is needed: apply its values.
    Apply,
    /// Refuse.
    Deny(Denial),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Callers cannot see it, or the request does not apply to paused sandboxes.
    NotFound,
    /// It is paused already.
    AlreadyPaused,
    /// It runs already.
    AlreadyRunning,
    /// Try again later.
    InTransition,
    /// It is being removed.
    BeingKilled,
}

/// Decides about `ask` in `phase`.
pub fn decide(phase: Phase, ask: Ask) -> Decision {
    use Decision::{Apply, Begin, Deny, Join, Wait};
    match (phase, ask) {
        (Phase::Running, Ask::Pause(keep)) => Begin(Transition::Pause(keep)),
        (Phase::Running, Ask::Resume(_)) => Deny(Denial::AlreadyRunning),
        (Phase::Running, Ask::Connect(_) | Ask::Wake) => Apply,
        (Phase::Running, Ask::Snapshot | Ask::Fork) => Begin(Transition::Snapshot),

        (Phase::Snapshotting, Ask::Pause(_) | Ask::Connect(_) | Ask::Kill | Ask::Fork) => Wait,
        (Phase::Snapshotting, Ask::Wake) => Apply,
        (Phase::Snapshotting, Ask::Resume(_)) => Deny(Denial::AlreadyRunning),
        (Phase::Snapshotting, Ask::Snapshot) => Deny(Denial::InTransition),
        // Its session goes on meanwhile.
        (Phase::Running | Phase::Snapshotting, Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork) => Apply,

        (Phase::Pausing(_), Ask::Pause(_)) => Join,
        (Phase::Pausing(_), Ask::Resume(_) | Ask::Connect(_) | Ask::Wake | Ask::Kill) => Wait,

        (Phase::Paused(_), Ask::Pause(_) | Ask::Fork) => Deny(Denial::AlreadyPaused),
        (Phase::Paused(Keep::Memory), Ask::Resume(from) | Ask::Connect(from)) => {
            Begin(Transition::Resume(from))
        }
        (Phase::Paused(Keep::Memory), Ask::Wake) => Begin(Transition::Resume(Keep::Memory)),
        (Phase::Paused(Keep::Files), Ask::Resume(_) | Ask::Connect(_)) => {
            Begin(Transition::Resume(Keep::Files))
        }
        // A cold start is nothing that a stray request should set off.
        (Phase::Paused(Keep::Files), Ask::Wake) => Deny(Denial::NotFound),
        // Clients 2.0 to 2.5 set a timeout first and resume only when that fails.
        (Phase::Paused(_), Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork | Ask::Snapshot) => {
            Deny(Denial::NotFound)
        }

        (Phase::Resuming(_), Ask::Pause(_)) => Deny(Denial::InTransition),
        (Phase::Resuming(_), Ask::Resume(_)) => Join,
        (Phase::Resuming(_), Ask::Connect(_) | Ask::Wake | Ask::Kill) => Wait,

        (
            Phase::Pausing(_) | Phase::Resuming(_),
            Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork | Ask::Snapshot | Ask::Fork,
        ) => Deny(Denial::InTransition),

        (Phase::Running | Phase::Paused(_), Ask::Kill) => Begin(Transition::Stop),
        (Phase::Stopping, Ask::Kill) => Join,
        (Phase::Stopping, Ask::Connect(_)) => Deny(Denial::BeingKilled),
        (Phase::Stopping, _) | (Phase::Gone, _) => Deny(Denial::NotFound),
    }
}

/// What follows when the processes end by themselves in `phase`; nothing when that is what is being done.
pub fn after_crash(phase: Phase) -> Option<Transition> {
    match phase {
        Phase::Running | Phase::Snapshotting | Phase::Pausing(Keep::Memory) => Some(Transition::Stop),
        // What was promised to be kept is kept as far as it can be.
        Phase::Paused(Keep::Memory) | Phase::Resuming(Keep::Memory) => Some(Transition::Pause(Keep::Files)),
        Phase::Pausing(Keep::Files) | Phase::Paused(Keep::Files) | Phase::Resuming(Keep::Files) => None,
        Phase::Stopping | Phase::Gone => None,
    }
}

impl Transition {
    /// The phase while it is under way.
    pub fn during(self) -> Phase {
        match self {
            Self::Pause(keep) => Phase::Pausing(keep),
            Self::Resume(from) => Phase::Resuming(from),
            Self::Snapshot => Phase::Snapshotting,
            Self::Stop => Phase::Stopping,
        }
    }

    /// The phase when it has succeeded.
    pub fn done(self) -> Phase {
        match self {
            Self::Pause(keep) => Phase::Paused(keep),
            Self::Resume(_) | Self::Snapshot => Phase::Running,
            Self::Stop => Phase::Gone,
        }
    }

    /// The phase when it has failed. A stop does not fail: what is left is swept at the next start. Neither does a pause
    /// that keeps only files come back from where it has begun to end processes.
    pub fn failed(self) -> Phase {
        match self {
            Self::Pause(Keep::Memory) | Self::Snapshot => Phase::Running,
            Self::Pause(Keep::Files) => Phase::Paused(Keep::Files),
            Self::Resume(from) => Phase::Paused(from),
            Self::Stop => Phase::Gone,
        }
    }
}

/// What happens when a running sandbox's time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It is removed.
    Kill,
    /// It is paused.
    Pause,
    /// It is paused, and only its files are kept.
    PauseFiles,
}

impl OnExpiry {
    /// The change it stands for.
    pub fn transition(self) -> Transition {
        match self {
            Self::Kill => Transition::Stop,
            Self::Pause => Transition::Pause(Keep::Memory),
            Self::PauseFiles => Transition::Pause(Keep::Files),
        }
    }

    /// As it is when a resume says whether to pause at all. What such a pause keeps is not its to say.
    pub fn overridden(self, pauses: bool) -> Self {
        match (self, pauses) {
            (_, false) => Self::Kill,
            (Self::Kill, true) => Self::Pause,
            (kept, true) => kept,
        }
    }
}

/// One session: from a start or resume to the planned end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// When it began.
    pub started_at: Timestamp,
    /// When it ends; never later than the start plus the longest session.
    pub end_at: Timestamp,
}

/// The end asked for lies beyond the longest session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeyondLongestSession;

impl Session {
    /// A session from `now` on, for `timeout` but at most `longest`.
    pub fn begin(now: Timestamp, timeout: Duration, longest: Duration) -> Self {
        Self { started_at: now, end_at: later(now, timeout.min(longest)) }
    }

    /// Moves the end to `timeout` from `now`, earlier or later; silently at most the longest session.
    pub fn set_end(&mut self, now: Timestamp, timeout: Duration, longest: Duration) {
        self.end_at = later(now, timeout).min(later(self.started_at, longest));
    }

    /// Moves the end to `timeout` from `now` if that is later; at most the longest session.
    pub fn extend(&mut self, now: Timestamp, timeout: Duration, longest: Duration) {
        self.end_at = later(now, timeout).min(later(self.started_at, longest)).max(self.end_at);
    }

    /// As [`Session::extend`], but an end beyond the longest session is an error.
    pub fn try_extend(
        &mut self,
        now: Timestamp,
        timeout: Duration,
        longest: Duration,
    ) -> Result<(), BeyondLongestSession> {
        if later(now, timeout) > later(self.started_at, longest) {
            return Err(BeyondLongestSession);
        }
        self.extend(now, timeout, longest);
        Ok(())
    }

    /// Whether time is up.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.end_at
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1000);

    /// What may happen to a sandbox.
    #[derive(Debug, Clone, Copy)]
    enum Happening {
        Asked(Ask),
        /// The change under way ends.
        Ended {
            well: bool,
        },
        Crashed,
        /// The clock moves, also backwards.
        ClockJumped(i64),
        Timeout(u64),
        Extended(u64),
    }

    fn keep() -> impl Strategy<Value = Keep> {
        prop::sample::select(vec![Keep::Memory, Keep::Files])
    }

    fn happening() -> impl Strategy<Value = Happening> {
        let ask = prop_oneof![
            keep().prop_map(Ask::Pause),
            keep().prop_map(Ask::Resume),
            keep().prop_map(Ask::Connect),
            prop::sample::select(vec![
                Ask::Wake,
                Ask::Kill,
                Ask::SetTimeout,
                Ask::Refresh,
                Ask::SetNetwork,
                Ask::Snapshot,
                Ask::Fork,
            ]),
        ];
        prop_oneof![
            6 => ask.prop_map(Happening::Asked),
            4 => prop::bool::weighted(0.8).prop_map(|well| Happening::Ended { well }),
            1 => Just(Happening::Crashed),
            2 => (-500i64..2000).prop_map(Happening::ClockJumped),
            1 => (0u64..5000).prop_map(Happening::Timeout),
            1 => (0u64..5000).prop_map(Happening::Extended),
        ]
    }

    /// A sandbox as the contract describes it: what callers see, and who waits. No phases.
    #[derive(Debug, Default)]
    struct Model {
        /// It was stopped and can go on.
        suspended: bool,
        /// It has processes, running or frozen.
        in_memory: bool,
        dead: bool,
        changing_to: Option<Transition>,
        /// Requests that were neither answered nor refused.
        open: usize,
    }

    impl Model {
        /// Whether `ask` may be refused now.
        fn may_refuse(&self, ask: Ask) -> bool {
            let dying = self.dead || self.changing_to == Some(Transition::Stop);
            let changing = self.changing_to.is_some();
            match ask {
                Ask::Kill => self.dead,
                _ if dying => true,
                Ask::Pause(_) => {
                    self.suspended && !changing || matches!(self.changing_to, Some(Transition::Resume(_)))
                }
                Ask::Resume(_) => !self.suspended && !matches!(self.changing_to, Some(Transition::Pause(_))),
                Ask::Connect(_) => false,
                Ask::Wake => self.suspended && !self.in_memory && !changing,
                Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork => {
                    self.suspended || matches!(self.changing_to, Some(Transition::Pause(_)))
                }
                Ask::Snapshot => self.suspended || changing,
                Ask::Fork => self.suspended || changing && self.changing_to != Some(Transition::Snapshot),
            }
        }
    }

    /// The driver's bookkeeping without its I/O.
    struct Machine {
        phase: Phase,
        underway: Option<Transition>,
        joined: usize,
        waiting: Vec<Ask>,
        session: Session,
        on_expiry: OnExpiry,
        now: Timestamp,
    }

    impl Machine {
        fn begin(&mut self, transition: Transition) {
            assert!(self.underway.is_none(), "two changes at once");
            self.underway = Some(transition);
            self.phase = transition.during();
        }

        fn ask(&mut self, ask: Ask, model: &mut Model) {
            match decide(self.phase, ask) {
                Decision::Begin(transition) => {
                    self.begin(transition);
                    self.joined += 1;
                    model.open += 1;
                    model.changing_to = Some(transition);
                }
                Decision::Join => {
                    assert!(self.underway.is_some(), "joined nothing");
                    self.joined += 1;
                    model.open += 1;
                }
                Decision::Wait => {
                    assert!(self.underway.is_some(), "would wait for ever");
                    self.waiting.push(ask);
                    model.open += 1;
                }
                Decision::Apply => assert!(
                    matches!(self.phase, Phase::Running | Phase::Snapshotting),
                    "applied to what does not run"
                ),
                Decision::Deny(_) => assert!(model.may_refuse(ask), "{ask:?} refused in {:?}", self.phase),
            }
        }

        fn end(&mut self, well: bool, model: &mut Model) {
            let Some(transition) = self.underway.take() else { return };
            self.phase = if well { transition.done() } else { transition.failed() };
            model.changing_to = None;
            match (transition, well) {
                (Transition::Pause(Keep::Memory), well) => model.suspended = well,
                (Transition::Pause(Keep::Files), _) => (model.suspended, model.in_memory) = (true, false),
                (Transition::Resume(_), true) => (model.suspended, model.in_memory) = (false, true),
                // Given up for a cold start that did not come about.
                (Transition::Resume(Keep::Files), false) => model.in_memory = false,
                (Transition::Resume(Keep::Memory), false) | (Transition::Snapshot, _) => {}
                (Transition::Stop, _) => model.dead = true,
            }
            if self.phase == Phase::Running && matches!(transition, Transition::Resume(_)) {
                self.session = Session::begin(self.now, Duration::from_secs(300), LONGEST);
            }
            model.open -= std::mem::take(&mut self.joined);
            for ask in std::mem::take(&mut self.waiting) {
                model.open -= 1;
                self.ask(ask, model);
            }
        }

        fn crash(&mut self, model: &mut Model) {
            let Some(transition) = after_crash(self.phase) else { return };
            self.underway = None;
            model.open -= std::mem::take(&mut self.joined);
            self.begin(transition);
            model.changing_to = Some(transition);
            if transition != Transition::Stop {
                (model.suspended, model.in_memory) = (true, false);
            }
        }

        fn look_at_clock(&mut self, model: &mut Model) {
            if self.phase == Phase::Running && self.session.is_over(self.now) {
                let transition = self.on_expiry.transition();
                self.begin(transition);
                model.changing_to = Some(transition);
            }
        }
    }

    proptest! {
        #[test]
        fn any_order_of_happenings_keeps_the_contract(
            happenings in prop::collection::vec(happening(), 0..80),
            on_expiry in prop::sample::select(vec![OnExpiry::Kill, OnExpiry::Pause, OnExpiry::PauseFiles]),
        ) {
            let start = Timestamp::from_second(1_000_000).unwrap();
            let mut model = Model { in_memory: true, ..Model::default() };
            let mut machine = Machine {
                phase: Phase::Running,
                underway: None,
                joined: 0,
                waiting: Vec::new(),
                session: Session::begin(start, Duration::from_secs(60), LONGEST),
                on_expiry,
                now: start,
            };
            for happening in happenings {
                let was_gone = machine.phase == Phase::Gone;
                match happening {
                    Happening::Asked(ask) => machine.ask(ask, &mut model),
                    Happening::Ended { well } => machine.end(well, &mut model),
                    Happening::Crashed => machine.crash(&mut model),
                    Happening::ClockJumped(by) => {
                        machine.now += jiff::SignedDuration::from_secs(by);
                        machine.look_at_clock(&mut model);
                    }
                    Happening::Timeout(seconds) => {
                        machine.session.set_end(machine.now, Duration::from_secs(seconds), LONGEST);
                    }
                    Happening::Extended(seconds) => {
                        let before = machine.session.end_at;
                        machine.session.extend(machine.now, Duration::from_secs(seconds), LONGEST);
                        prop_assert!(machine.session.end_at >= before, "an extension shortened");
                    }
                }
                prop_assert!(!was_gone || machine.phase == Phase::Gone, "the dead came back");
                prop_assert_eq!(machine.phase == Phase::Gone, model.dead);
                prop_assert_eq!(model.open, machine.joined + machine.waiting.len(), "a request was lost");
                if let Phase::Paused(keep) = machine.phase {
                    prop_assert!(model.suspended && model.in_memory == (keep == Keep::Memory), "kept something else");
                }
                let longest_end = later(machine.session.started_at, LONGEST);
                prop_assert!(machine.session.end_at <= longest_end, "longer than the longest session");
            }
            // Whatever happened, changes that end answer everybody.
            while machine.underway.is_some() {
                machine.end(true, &mut model);
            }
            prop_assert_eq!(model.open, 0, "somebody waits for ever");
        }
    }

    #[test]
    fn connect_never_shortens_and_refuses_what_is_too_long() {
        let start = Timestamp::from_second(0).unwrap();
        let mut session = Session::begin(start, Duration::from_secs(100), LONGEST);
        let end = session.end_at;
        assert_eq!(session.try_extend(start, Duration::from_secs(10), LONGEST), Ok(()));
        assert_eq!(session.end_at, end);
        assert_eq!(session.try_extend(start, Duration::from_secs(1001), LONGEST), Err(BeyondLongestSession));
        assert_eq!(session.end_at, end);
    }
}
