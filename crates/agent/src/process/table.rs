//! The table of processes: live ones, and for a while those that have ended, so that a client that reconnects late still gets
//! the end event (contract: envd, section 2.3, exited process). Generic over the process, because the rules are only about
//! keys and time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandcove_wire::envd::process::process_selector::Selector;
use tokio::time::Instant;

/// How long an ended process is kept.
pub const RETENTION: Duration = Duration::from_secs(30);
/// Limit on ended processes kept. A sandbox that runs thousands of commands a second must not fill the daemon.
pub const MAX_ENDED: usize = 512;

/// Processes by id and tag.
#[derive(Debug)]
pub struct Table<P> {
    entries: Mutex<Entries<P>>,
}

#[derive(Debug)]
struct Entries<P> {
    live: HashMap<u32, Entry<P>>,
    /// Ended processes, the oldest first.
    ended: VecDeque<(Instant, u32, Entry<P>)>,
    started: u64,
}

#[derive(Debug)]
struct Entry<P> {
    tag: Option<String>,
    /// Number of the start, so that the newest of several with one tag can be found.
    number: u64,
    process: Arc<P>,
}

impl<P> Entry<P> {
    fn is(&self, pid: u32, selector: &Selector) -> bool {
        match selector {
            Selector::Pid(wanted) => pid == *wanted,
            Selector::Tag(wanted) => self.tag.as_ref() == Some(wanted),
        }
    }
}

impl<P> Default for Table<P> {
    fn default() -> Self {
        let entries = Entries { live: HashMap::new(), ended: VecDeque::new(), started: 0 };
        Self { entries: Mutex::new(entries) }
    }
}

impl<P> Table<P> {
    fn entries(&self) -> MutexGuard<'_, Entries<P>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a started process. Ended ones with its id or tag can no longer be found.
    pub fn insert(&self, pid: u32, tag: Option<String>, process: Arc<P>) {
        let mut entries = self.entries();
        entries.expire();
        entries.ended.retain(|(_, id, entry)| *id != pid && (tag.is_none() || entry.tag != tag));
        entries.started += 1;
        let number = entries.started;
        entries.live.insert(pid, Entry { tag, number, process });
    }

    /// Moves a process to the ended ones.
    pub fn retire(&self, pid: u32, process: &Arc<P>) {
        let mut entries = self.entries();
        entries.expire();
        // A live process with this id is another one if the kernel has reused the id since the exit.
        if !entries.live.get(&pid).is_some_and(|entry| Arc::ptr_eq(&entry.process, process)) {
            return;
        }
        if let Some(entry) = entries.live.remove(&pid) {
            if entries.ended.len() == MAX_ENDED {
                entries.ended.pop_front();
            }
            entries.ended.push_back((Instant::now(), pid, entry));
        }
    }

    /// Removes ended processes whose time is over.
    pub fn expire(&self) {
        self.entries().expire();
    }

    /// All live processes.
    pub fn live(&self) -> Vec<Arc<P>> {
        self.entries().live.values().map(|entry| Arc::clone(&entry.process)).collect()
    }

    /// The live process that `selector` means; with a tag the one started last.
    pub fn find_live(&self, selector: &Selector) -> Option<Arc<P>> {
        self.entries().find_live(selector)
    }

    /// The process of [`Table::find_live`], or else the one that ended last and is still kept.
    pub fn find(&self, selector: &Selector) -> Option<Arc<P>> {
        let mut entries = self.entries();
        entries.expire();
        entries.find_live(selector).or_else(|| {
            let mut ended = entries.ended.iter().rev();
            ended
                .find(|(_, pid, entry)| entry.is(*pid, selector))
                .map(|(_, _, entry)| Arc::clone(&entry.process))
        })
    }
}

impl<P> Entries<P> {
    fn expire(&mut self) {
        while self.ended.front().is_some_and(|(at, _, _)| at.elapsed() >= RETENTION) {
            self.ended.pop_front();
        }
    }

    fn find_live(&self, selector: &Selector) -> Option<Arc<P>> {
        if let Selector::Pid(pid) = selector {
            return self.live.get(pid).map(|entry| Arc::clone(&entry.process));
        }
        let matching = self.live.iter().filter(|(pid, entry)| entry.is(**pid, selector));
        matching.max_by_key(|(_, entry)| entry.number).map(|(_, entry)| Arc::clone(&entry.process))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An operation on a table.
    #[derive(Debug, Clone)]
    enum Action {
        Start {
            pid: u32,
            tag: Option<u8>,
        },
        /// Ends the n-th process ever started; ending it twice must change nothing.
        End(usize),
        Wait(u64),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            (1u32..6, prop::option::of(0u8..3)).prop_map(|(pid, tag)| Action::Start { pid, tag }),
            (0usize..24).prop_map(Action::End),
            (0u64..40).prop_map(Action::Wait),
        ]
    }

    /// The rules in their simplest form: an entry for every process ever started.
    #[derive(Debug)]
    struct Model {
        pid: u32,
        tag: Option<u8>,
        number: usize,
        /// Time in seconds, and the order of ends within a second.
        ended: Option<(u64, usize)>,
        hidden: bool,
    }

    fn matches(one: &Model, selector: &Selector) -> bool {
        match selector {
            Selector::Pid(pid) => one.pid == *pid,
            Selector::Tag(tag) => one.tag.is_some_and(|t| t.to_string() == *tag),
        }
    }

    async fn run(actions: Vec<Action>) {
        let table = Table::<usize>::default();
        let mut model: Vec<Model> = Vec::new();
        let mut processes: Vec<Arc<usize>> = Vec::new();
        let mut now = 0;
        for (step, action) in actions.into_iter().enumerate() {
            match action {
                Action::Start { pid, tag } => {
                    for one in &mut model {
                        // A live process with the same id has ended, as the kernel has reused the id.
                        let same = one.pid == pid || (one.ended.is_some() && tag.is_some() && one.tag == tag);
                        one.hidden |= same;
                    }
                    let number = model.len();
                    model.push(Model { pid, tag, number, ended: None, hidden: false });
                    processes.push(Arc::new(number));
                    table.insert(pid, tag.map(|t| t.to_string()), Arc::clone(&processes[number]));
                }
                Action::End(number) => {
                    if let Some(one) = model.get_mut(number) {
                        table.retire(one.pid, &processes[number]);
                        one.ended = one.ended.or(Some((now, step)));
                    }
                }
                Action::Wait(seconds) => {
                    now += seconds;
                    tokio::time::advance(Duration::from_secs(seconds)).await;
                }
            }
            let pids = (1..6).map(Selector::Pid);
            for selector in pids.chain((0..3).map(|tag: u8| Selector::Tag(tag.to_string()))) {
                let visible = || model.iter().filter(|one| !one.hidden && matches(one, &selector));
                let live = visible().filter(|one| one.ended.is_none()).map(|one| one.number).max();
                let kept = |at: u64| now - at < RETENTION.as_secs();
                let ended = visible().filter(|one| one.ended.is_some_and(|(at, _)| kept(at)));
                let ended = ended.max_by_key(|one| one.ended).map(|one| one.number);
                assert_eq!(table.find_live(&selector).map(|p| *p), live, "{selector:?} live in {model:?}");
                assert_eq!(table.find(&selector).map(|p| *p), live.or(ended), "{selector:?} in {model:?}");
            }
            let live = model.iter().filter(|one| one.ended.is_none() && !one.hidden).count();
            assert_eq!(table.live().len(), live);
        }
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_the_model(actions in prop::collection::vec(action(), 0..48)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(run(actions));
        }
    }

    #[tokio::test]
    async fn only_so_many_ends_are_kept() {
        let table = Table::<u32>::default();
        for pid in 1..=u32::try_from(MAX_ENDED).unwrap() + 10 {
            let process = Arc::new(pid);
            table.insert(pid, None, Arc::clone(&process));
            table.retire(pid, &process);
        }
        assert!(table.find(&Selector::Pid(10)).is_none());
        assert!(table.find(&Selector::Pid(11)).is_some());
    }
}
