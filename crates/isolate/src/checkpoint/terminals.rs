//! Controlling terminals. A process gets the one of its session from its parent, when it is forked; CRIU gives it to the first process of the
//! session alone, and after all are forked. So the terminals of sessions are created before any process is, by what is preloaded into CRIU
//! (`packaging/criu/preload.c`), and the images name those that CRIU finds there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use super::images::{MAGIC, change, change_nested, get, set_text, text};
use super::numbers::processes;
use crate::jail::SESSIONS;

/// Major numbers of the terminals of `/dev/pts`, and how many minor numbers each has.
const MAJORS: std::ops::Range<u64> = 136..144;
const MINORS: u64 = 256;
/// Device number of `/dev/pts/ptmx`, which every master is opened by.
const MASTER: u64 = 5 << 8 | 2;
/// The process of a terminal without a session.
const NO_LEADER: u32 = 0;
/// Fields of messages in `tty-info.img`: id, device number, and the terminal's number in a message of its own.
const INFO: [u64; 3] = [1, 8, 12];
/// Fields of messages in `files.img` that have another message each: an ordinary file and a terminal.
const REGULAR: u64 = 3;
const TTY: u64 = 19;

/// Session and terminal of a process, as `/proc/PID/stat` has them.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_dead: bool,
    parent: u32,
    session: u32,
    /// Number in `/dev/pts` of the controlling terminal.
    terminal: Option<u64>,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let device: u64 = fields.get(4)?.parse().ok()?;
        let (major, minor) = (device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00);
        let terminal = MAJORS.contains(&major).then(|| (major - MAJORS.start) * MINORS + minor);
        let parent = fields.get(1)?.parse().ok()?;
        Some(Self {
            is_dead: *fields.first()? == "Z",
            parent,
            session: fields.get(3)?.parse().ok()?,
            terminal,
        })
    }
}

/// A process that has given up the controlling terminal of its session. It would have it in a copy.
pub(super) fn without(pids: &[u32]) -> Option<u32> {
    let stats: BTreeMap<u32, Stat> = pids.iter().filter_map(|pid| Some((*pid, Stat::of(*pid)?))).collect();
    let lacks = |stat: &Stat| {
        let leader = stats.get(&stat.session);
        !stat.is_dead && stat.terminal.is_none() && leader.is_some_and(|leader| leader.terminal.is_some())
    };
    stats.iter().find(|(_, stat)| lacks(stat)).map(|(pid, _)| *pid)
}

/// A process whose session has lost its first process, and whose parent is of another session and not the first of all: it was adopted by a
/// subreaper. CRIU stores it, and finds nobody then who could begin the session.
pub(super) fn adopted(pids: &[u32]) -> Option<u32> {
    let stats: BTreeMap<u32, Stat> = pids.iter().filter_map(|pid| Some((*pid, Stat::of(*pid)?))).collect();
    find_adopted(&stats)
}

fn find_adopted(stats: &BTreeMap<u32, Stat>) -> Option<u32> {
    let is_adopted = |stat: &Stat| {
        let parent = stats.get(&stat.parent);
        let by_other = |parent: &Stat| parent.session != stat.session && stats.contains_key(&parent.parent);
        !stats.contains_key(&stat.session) && parent.is_some_and(by_other)
    };
    stats.iter().find(|(_, stat)| is_adopted(stat)).map(|(pid, _)| *pid)
}

/// Writes the terminals, and the processes that they control, into the directory of the images, and gives their masters the names by which CRIU finds
/// them: `/./././dev/pts/ptmx` is the one of terminal 2.
pub(super) fn store(pids: &[u32], directory: &Path) -> io::Result<()> {
    let leaders = processes(pids).into_iter().filter_map(|(inside, pid)| {
        let stat = Stat::of(pid)?;
        (stat.session == pid).then_some((stat.terminal?, inside))
    });
    let mut leaders: BTreeMap<u64, u32> = leaders.collect();
    name_masters(directory, &mut leaders)?;
    std::fs::write(directory.join(SESSIONS), serde_json::to_vec(&leaders)?)
}

/// Names the masters of all terminals, and adds those without a session to `leaders`: CRIU itself finds none after the 32nd. A terminal whose
/// master is elsewhere is left out.
fn name_masters(directory: &Path, leaders: &mut BTreeMap<u64, u32>) -> io::Result<()> {
    let mut masters = BTreeMap::new();
    let infos = directory.join("tty-info.img");
    if !infos.exists() {
        leaders.clear();
        return Ok(());
    }
    change(&infos, MAGIC, |info| {
        let [id, device, terminal] = INFO;
        let (id, is_master) = (get(info, id), get(info, device) == MASTER);
        change_nested(info, terminal, |terminal| {
            if is_master {
                masters.insert(id, get(terminal, 1));
            }
        })
    })?;
    let files = directory.join("files.img");
    let mut names = BTreeMap::new();
    change(&files, MAGIC, |file| {
        change_nested(file, TTY, |file| {
            if let Some(terminal) = masters.get(&get(file, 2)) {
                names.insert(get(file, 6), *terminal);
            }
        })
    })?;
    let mut named = BTreeSet::new();
    change(&files, MAGIC, |file| {
        change_nested(file, REGULAR, |file| {
            if let Some(terminal) = names.get(&get(file, 1))
                && let Some(name) = text(file, 6).filter(|name| name.ends_with("/ptmx"))
            {
                // From 1 on: the usual name has none.
                let dots = "./".repeat(*terminal as usize + 1);
                let name = format!("/{dots}{}", name.trim_start_matches('/'));
                set_text(file, 6, &name);
                named.insert(*terminal);
            }
        })
    })?;
    leaders.retain(|terminal, _| named.contains(terminal));
    named.into_iter().for_each(|terminal| {
        leaders.entry(terminal).or_insert(NO_LEADER);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::criu::{Fields, Value, encode};

    #[test]
    fn terminals_are_numbered_as_in_their_directory() {
        let stat = |device: u64| Stat::parse(&format!("7 (a) b) S 1 7 5 {device} 7 0\n")).unwrap();
        assert_eq!(stat(0), Stat { is_dead: false, parent: 1, session: 5, terminal: None });
        assert_eq!(stat(136 << 8 | 3).terminal, Some(3));
        assert_eq!(stat(137 << 8 | 3).terminal, Some(259));
        // The console.
        assert_eq!(stat(5 << 8 | 1).terminal, None);
        assert_eq!(Stat::parse("7 (a"), None);
    }

    #[test]
    fn an_adopted_process_is_found() {
        let stat = |parent, session| Stat { is_dead: false, parent, session, terminal: None };
        // The first, a process of it, and a daemon and its child.
        let mut stats =
            BTreeMap::from([(10, stat(1, 10)), (11, stat(10, 11)), (12, stat(10, 90)), (13, stat(12, 90))]);
        assert_eq!(find_adopted(&stats), None);
        stats.insert(14, stat(11, 91));
        assert_eq!(find_adopted(&stats), Some(14));
    }

    fn image(messages: &[Fields]) -> Vec<u8> {
        let mut image = vec![0; MAGIC];
        for message in messages {
            let message = encode(message);
            image.extend_from_slice(&(message.len() as u32).to_le_bytes());
            image.extend_from_slice(&message);
        }
        image
    }

    fn numbers(fields: &[(u64, u64)]) -> Vec<(u64, Value)> {
        fields.iter().map(|(number, value)| (*number, Value::Integer(*value))).collect()
    }

    #[test]
    fn masters_of_sessions_get_names_that_say_which_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let info = |id, device, terminal| {
            let mut info = numbers(&[(1, id), (8, device)]);
            info.push((12, Value::Bytes(encode(&numbers(&[(1, terminal)])))));
            info
        };
        let slave = 136 << 8;
        let infos = [info(5, MASTER, 2), info(4, slave | 2, 2), info(3, MASTER, 1), info(9, slave | 4, 4)];
        std::fs::write(directory.path().join("tty-info.img"), image(&infos)).unwrap();
        let tty =
            |id, info, file| vec![(TTY, Value::Bytes(encode(&numbers(&[(1, id), (2, info), (6, file)]))))];
        let file = |id, name: &str| {
            let mut file = numbers(&[(1, id)]);
            file.push((6, Value::Bytes(name.into())));
            vec![(REGULAR, Value::Bytes(encode(&file)))]
        };
        let files = [
            tty(1, 5, 11),
            tty(2, 4, 12),
            tty(3, 3, 13),
            file(11, "/dev/pts/ptmx"),
            file(12, "/dev/pts/2"),
            file(13, "/dev/pts/ptmx"),
        ];
        std::fs::write(directory.path().join("files.img"), image(&files)).unwrap();
        let mut leaders = BTreeMap::from([(2, 70), (4, 71)]);
        name_masters(directory.path(), &mut leaders).unwrap();
        assert_eq!(leaders, BTreeMap::from([(2, 70), (1, NO_LEADER)]));
        let mut files = files;
        files[3] = file(11, "/./././dev/pts/ptmx");
        files[5] = file(13, "/././dev/pts/ptmx");
        assert_eq!(std::fs::read(directory.path().join("files.img")).unwrap(), image(&files));
    }
}
