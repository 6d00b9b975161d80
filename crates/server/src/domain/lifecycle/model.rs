//! Any order of commands, ends, crashes and clock jumps, checked against a model of the contract.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

const MAX_SESSION: Duration = Duration::from_secs(1000);

/// A step in the life of a sandbox.
#[derive(Debug, Clone)]
enum Step {
    Received(Command),
    /// The transition in flight ends.
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

fn step() -> impl Strategy<Value = Step> {
    let timeout = Duration::ZERO;
    let command = prop_oneof![
        keep().prop_map(Command::Pause),
        keep().prop_map(move |from| Command::Resume { from, timeout, auto_pause: None }),
        keep().prop_map(move |from| Command::Connect { from, timeout }),
        prop::sample::select(vec![
            Command::Wake,
            Command::Demote,
            Command::Park,
            Command::Kill(KillReason::Request),
            Command::SetTimeout(timeout),
            Command::Refresh(timeout),
            Command::SetNetwork(Some(Box::default())),
            Command::Snapshot(SnapshotOrder { name: String::new(), keep: Keep::Memory }),
            Command::Fork(SnapshotOrder { name: String::new(), keep: Keep::Files }),
        ]),
    ];
    prop_oneof![
        6 => command.prop_map(Step::Received),
        4 => prop::bool::weighted(0.8).prop_map(|well| Step::Ended { well }),
        1 => Just(Step::Crashed),
        2 => (-500i64..2000).prop_map(Step::ClockJumped),
        1 => (0u64..5000).prop_map(Step::Timeout),
        1 => (0u64..5000).prop_map(Step::Extended),
    ]
}

/// A sandbox as the contract describes it: what callers see, and who waits. No phases.
#[derive(Debug, Default)]
struct Model {
    /// The sandbox was stopped and can go on.
    suspended: bool,
    /// The sandbox has processes, running or frozen.
    in_memory: bool,
    dead: bool,
    changing_to: Option<Transition>,
    /// Requests that were neither answered nor refused.
    open: usize,
}

impl Model {
    /// Whether `command` may be refused now.
    fn may_refuse(&self, command: &Command) -> bool {
        let dying = self.dead || self.changing_to == Some(Transition::Stop);
        let changing = self.changing_to.is_some();
        match command {
            Command::Kill(_) => self.dead,
            _ if dying => true,
            Command::Pause(_) => {
                let parks = self.changing_to == Some(Transition::Park);
                self.suspended && (!changing || parks)
                    || matches!(self.changing_to, Some(Transition::Resume(_)))
            }
            Command::Resume { .. } => {
                !self.suspended && !matches!(self.changing_to, Some(Transition::Pause(_)))
            }
            Command::Connect { .. } => false,
            Command::Wake => self.suspended && !self.in_memory && !changing,
            Command::Demote | Command::Park => !self.suspended || !self.in_memory || changing,
            Command::SetTimeout(_) | Command::Refresh(_) | Command::SetNetwork(_) => {
                self.suspended || matches!(self.changing_to, Some(Transition::Pause(_)))
            }
            Command::Snapshot(_) => self.suspended || changing,
            Command::Fork(_) => self.suspended || changing && self.changing_to != Some(Transition::Snapshot),
        }
    }
}

/// The driver's bookkeeping without its I/O.
struct Machine {
    phase: Phase,
    in_flight: Option<Transition>,
    joined: usize,
    waiting: Vec<Command>,
    session: Session,
    on_expiry: OnExpiry,
    now: Timestamp,
}

impl Machine {
    fn begin(&mut self, transition: Transition) {
        assert!(self.in_flight.is_none(), "two changes at once");
        self.in_flight = Some(transition);
        self.phase = transition.during();
    }

    fn receive(&mut self, command: Command, model: &mut Model) {
        match decide(self.phase, &command) {
            Decision::Begin(transition) => {
                self.begin(transition);
                self.joined += 1;
                model.open += 1;
                model.changing_to = Some(transition);
            }
            Decision::Join => {
                assert!(self.in_flight.is_some(), "joined nothing");
                self.joined += 1;
                model.open += 1;
            }
            Decision::Wait => {
                assert!(self.in_flight.is_some(), "would wait for ever");
                self.waiting.push(command);
                model.open += 1;
            }
            Decision::Apply => assert!(
                matches!(self.phase, Phase::Running | Phase::Snapshotting),
                "applied to what does not run"
            ),
            Decision::Deny(_) => {
                assert!(model.may_refuse(&command), "{command:?} refused in {:?}", self.phase);
            }
        }
    }

    fn end(&mut self, well: bool, model: &mut Model) {
        let Some(transition) = self.in_flight.take() else { return };
        self.phase = if well { transition.done() } else { transition.failed() };
        model.changing_to = None;
        match (transition, well) {
            (Transition::Pause(Keep::Memory), well) => model.suspended = well,
            (Transition::Pause(Keep::Files), _) => (model.suspended, model.in_memory) = (true, false),
            (Transition::Resume(_), true) => (model.suspended, model.in_memory) = (false, true),
            // Given up for a cold start that did not come about.
            (Transition::Resume(Keep::Files), false) => model.in_memory = false,
            (Transition::Resume(Keep::Memory), false) | (Transition::Snapshot | Transition::Park, _) => {}
            (Transition::Stop, _) => model.dead = true,
        }
        if self.phase == Phase::Running && matches!(transition, Transition::Resume(_)) {
            self.session = Session::begin(self.now, Duration::from_secs(300), MAX_SESSION);
        }
        model.open -= std::mem::take(&mut self.joined);
        for command in std::mem::take(&mut self.waiting) {
            model.open -= 1;
            self.receive(command, model);
        }
    }

    fn crash(&mut self, model: &mut Model) {
        let Some(transition) = after_crash(self.phase) else { return };
        self.in_flight = None;
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
        steps in prop::collection::vec(step(), 0..80),
        on_expiry in prop::sample::select(vec![OnExpiry::Kill, OnExpiry::Pause, OnExpiry::PauseFiles]),
    ) {
        let start = Timestamp::from_second(1_000_000).unwrap();
        let mut model = Model { in_memory: true, ..Model::default() };
        let mut machine = Machine {
            phase: Phase::Running,
            in_flight: None,
            joined: 0,
            waiting: Vec::new(),
            session: Session::begin(start, Duration::from_secs(60), MAX_SESSION),
            on_expiry,
            now: start,
        };
        for step in steps {
            let was_gone = machine.phase == Phase::Gone;
            match step {
                Step::Received(command) => machine.receive(command, &mut model),
                Step::Ended { well } => machine.end(well, &mut model),
                Step::Crashed => machine.crash(&mut model),
                Step::ClockJumped(by) => {
                    machine.now += jiff::SignedDuration::from_secs(by);
                    machine.look_at_clock(&mut model);
                }
                Step::Timeout(seconds) => {
                    machine.session.set_end(machine.now, Duration::from_secs(seconds), MAX_SESSION);
                }
                Step::Extended(seconds) => {
                    let before = machine.session.end_at;
                    machine.session.extend(machine.now, Duration::from_secs(seconds), MAX_SESSION);
                    prop_assert!(machine.session.end_at >= before, "an extension shortened");
                }
            }
            prop_assert!(!was_gone || machine.phase == Phase::Gone, "the dead came back");
            prop_assert_eq!(machine.phase == Phase::Gone, model.dead);
            prop_assert_eq!(model.open, machine.joined + machine.waiting.len(), "a request was lost");
            if let Phase::Paused(keep) = machine.phase {
                prop_assert!(model.suspended && model.in_memory == (keep == Keep::Memory), "kept something else");
            }
            let max_end = machine.session.started_at + MAX_SESSION;
            prop_assert!(machine.session.end_at <= max_end, "longer than the maximum session");
        }
        // After any steps, transitions that end answer every caller.
        while machine.in_flight.is_some() {
            machine.end(true, &mut model);
        }
        prop_assert_eq!(model.open, 0, "a caller waits for ever");
    }
}
