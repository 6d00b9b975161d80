//! Any order of happenings, held against a model of the contract.

use std::time::Duration;

use jiff::Timestamp;
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
            let longest_end = machine.session.started_at + LONGEST;
            prop_assert!(machine.session.end_at <= longest_end, "longer than the longest session");
        }
        // Whatever happened, changes that end answer everybody.
        while machine.underway.is_some() {
            machine.end(true, &mut model);
        }
        prop_assert_eq!(model.open, 0, "somebody waits for ever");
    }
}
