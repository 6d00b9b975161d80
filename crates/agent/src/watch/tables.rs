//! Distributes events to watchers: events of the kernel in, events for clients out.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::inotify::ReadFlags;
use rustix::io::Errno;
use sandcove_wire::envd::filesystem::{EventType, FilesystemEvent};

use super::event::{self, leaves_entry};
use super::kernel::{Kernel, Links, RawEvent, Watch};
use super::queue::Queue;
use super::tree::{Node, Tree};
use crate::filesystem::Describer;
use crate::rpc::{Error, Result};

/// How long after a directory was moved away it may appear elsewhere. Both events come almost together.
pub(super) const MOVE_PAIRING: Duration = Duration::from_millis(50);

/// The options of a watcher.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Path of the directory, or of a link to it.
    pub(super) root: PathBuf,
    /// Whether directories below it are watched too.
    pub(super) recursive: bool,
    /// Whether events carry the entry they are about.
    pub(super) include_entry: bool,
}

/// The id of a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(u64);

/// A directory found in another directory: the parent and its name.
pub(super) type Found = (Node, OsString);

/// All watchers.
#[derive(Default)]
pub(super) struct Tables {
    next: u64,
    watchers: HashMap<Id, State>,
    /// Watchers of each directory, with the node that it is in their tree.
    interested: HashMap<Watch, Vec<(Id, Node)>>,
    /// Directories of which only the first event of a move has been seen.
    moving: HashMap<(Id, u32), (Node, Instant)>,
    /// Directories in which entries were reported ahead of their events.
    announced: Vec<(Id, Node)>,
}

struct State {
    options: Options,
    queue: Arc<Queue>,
    tree: Tree,
}

impl Tables {
    /// Adds a watcher that watches nothing yet.
    pub(super) fn admit(&mut self, options: Options) -> (Id, Arc<Queue>) {
        let id = Id(self.next);
        self.next += 1;
        let queue = Arc::new(Queue::default());
        self.watchers.insert(id, State { options, queue: Arc::clone(&queue), tree: Tree::default() });
        (id, queue)
    }

    /// Removes a watcher, and returns what has to be released then.
    pub(super) fn dismiss(&mut self, id: Id) -> Vec<(Node, Watch)> {
        self.watchers.remove(&id).map(|mut watcher| watcher.tree.clear()).unwrap_or_default()
    }

    /// Removes one directory of one watcher, and the watch if no other watcher has it.
    pub(super) fn release(&mut self, kernel: &Kernel, id: Id, node: Node, watch: Watch) {
        let Some(interested) = self.interested.get_mut(&watch) else { return };
        interested.retain(|other| *other != (id, node));
        if interested.is_empty() {
            self.interested.remove(&watch);
            kernel.remove(watch);
        }
    }

    fn remove_below(&mut self, kernel: &Kernel, id: Id, node: Node) {
        let removed = self.watchers.get_mut(&id).map(|watcher| watcher.tree.remove(node)).unwrap_or_default();
        for (node, watch) in removed {
            self.release(kernel, id, node, watch);
        }
    }

    /// Ends all watchers with `error`.
    pub(super) fn fail_all(&mut self, error: &Error) {
        for watcher in self.watchers.values() {
            watcher.queue.fail(error.clone());
        }
    }

    /// Registers a directory, or the root, and lists it: `each` is called for all entries, and the directories among them are
    /// returned. A directory that has vanished or is not readable is skipped.
    pub(super) fn register(
        &mut self,
        kernel: &Kernel,
        id: Id,
        directory: Option<Found>,
        each: &mut dyn FnMut(Node, &OsStr),
    ) -> Result<Vec<Found>> {
        let Some(watcher) = self.watchers.get_mut(&id) else { return Ok(Vec::new()) };
        let (path, links) = match &directory {
            None => (watcher.options.root.clone(), Links::Follow),
            Some((parent, name)) => match watcher.tree.path(*parent) {
                Some(above) => (watcher.options.root.join(above).join(name), Links::Refuse),
                None => return Ok(Vec::new()),
            },
        };
        let watch = match kernel.add(&path, links) {
            Ok(watch) => watch,
            Err(Errno::NOSPC) => return Err(limit_reached(&path)),
            Err(error) if directory.is_none() => return Err(root_failed(&path, error)),
            Err(_) => return Ok(Vec::new()),
        };
        let node = match directory {
            None => Some(watcher.tree.add_root(watch)),
            Some((parent, name)) => watcher.tree.add(parent, &name, watch),
        };
        // Known already: it was found twice, by listing and by its event.
        let Some(node) = node else { return Ok(Vec::new()) };
        self.interested.entry(watch).or_default().push((id, node));
        if !watcher.options.recursive {
            return Ok(Vec::new());
        }
        let mut directories = Vec::new();
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            each(node, &entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push((node, entry.file_name()));
            }
        }
        Ok(directories)
    }

    /// Reports an event to all watchers of its directory.
    pub(super) fn handle(&mut self, kernel: &Kernel, describer: &mut Option<Describer>, event: RawEvent) {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            let text = "the kernel's queue of events overflowed, and some are lost";
            return self.fail_all(&Error::internal(text));
        }
        let interested = match event.flags.contains(ReadFlags::IGNORED) {
            true => self.interested.remove(&event.watch),
            false => self.interested.get(&event.watch).cloned(),
        };
        for (id, node) in interested.unwrap_or_default() {
            if event.flags.contains(ReadFlags::IGNORED) {
                self.remove_below(kernel, id, node);
            } else if let Some(name) = &event.name {
                self.changed_inside(kernel, describer, id, node, name, &event);
            } else {
                self.changed_itself(kernel, describer, id, node, event.flags);
            }
        }
    }

    /// Handles an event about a watched directory itself. Those below the root are known from the directory above.
    fn changed_itself(
        &mut self,
        kernel: &Kernel,
        describer: &mut Option<Describer>,
        id: Id,
        node: Node,
        flags: ReadFlags,
    ) {
        let Some(watcher) = self.watchers.get_mut(&id).filter(|watcher| watcher.tree.is_root(node)) else {
            return;
        };
        for kind in event::types(flags) {
            watcher.report(describer, Path::new("."), kind);
        }
        if flags.contains(ReadFlags::MOVE_SELF) {
            // The new path is unknown, and the old path is not valid any more.
            self.remove_below(kernel, id, node);
        }
    }

    fn changed_inside(
        &mut self,
        kernel: &Kernel,
        describer: &mut Option<Describer>,
        id: Id,
        node: Node,
        name: &OsStr,
        event: &RawEvent,
    ) {
        let Some(watcher) = self.watchers.get_mut(&id) else { return };
        let Some(path) = watcher.tree.path(node).map(|path| path.join(name)) else { return };
        if event::may_be_nameless(event.flags, name.as_bytes())
            && fs::symlink_metadata(watcher.options.root.join(&path)).is_err()
        {
            return;
        }
        let announced = watcher.tree.take_announced(node, name);
        if !(announced && event.flags.contains(ReadFlags::CREATE)) {
            for kind in event::types(event.flags) {
                watcher.report(describer, &path, kind);
            }
        }
        if watcher.options.recursive && event.flags.contains(ReadFlags::ISDIR) {
            self.follow_directory(kernel, describer, id, node, name, event);
        }
    }

    /// Updates the tree when directories are created, removed or moved.
    fn follow_directory(
        &mut self,
        kernel: &Kernel,
        describer: &mut Option<Describer>,
        id: Id,
        node: Node,
        name: &OsStr,
        event: &RawEvent,
    ) {
        let Some(watcher) = self.watchers.get_mut(&id) else { return };
        let known = watcher.tree.child(node, name);
        if event.flags.contains(ReadFlags::MOVED_FROM) {
            if let Some(moved) = known {
                watcher.tree.detach(moved);
                self.moving.insert((id, event.cookie), (moved, Instant::now()));
            }
        } else if event.flags.contains(ReadFlags::DELETE) {
            if let Some(removed) = known {
                self.remove_below(kernel, id, removed);
            }
        } else if event.flags.contains(ReadFlags::MOVED_TO) {
            let replaced = match self.moving.remove(&(id, event.cookie)) {
                Some((moved, _)) => watcher.tree.attach(moved, node, name),
                None => {
                    self.register_new(kernel, describer, id, (node, name.to_owned()), News::Old);
                    None
                }
            };
            if let Some(replaced) = replaced {
                self.remove_below(kernel, id, replaced);
            }
        } else if event.flags.contains(ReadFlags::CREATE) {
            self.register_new(kernel, describer, id, (node, name.to_owned()), News::New);
        }
    }

    /// Registers a directory that has just appeared. Entries created in it before it was listed have no events of their own.
    fn register_new(
        &mut self,
        kernel: &Kernel,
        describer: &mut Option<Describer>,
        id: Id,
        found: Found,
        news: News,
    ) {
        let mut left = vec![found];
        while let Some(found) = left.pop() {
            let mut entries = Vec::new();
            match self
                .register(kernel, id, Some(found), &mut |node, name| entries.push((node, name.to_owned())))
            {
                Ok(directories) => left.extend(directories),
                Err(error) => {
                    if let Some(watcher) = self.watchers.get(&id) {
                        watcher.queue.fail(error);
                    }
                    return;
                }
            }
            let Some(watcher) = self.watchers.get_mut(&id) else { return };
            if news == News::New {
                self.announced.extend(entries.first().map(|(node, _)| (id, *node)));
                for (node, name) in entries {
                    let Some(path) = watcher.tree.path(node) else { continue };
                    watcher.report(describer, &path.join(&name), EventType::Create);
                    watcher.tree.announce(node, &name);
                }
            }
        }
    }

    /// Cleans up when all available events are handled. Returns whether a move still waits for its second event.
    pub(super) fn settle(&mut self, kernel: &Kernel) -> bool {
        for (id, node) in std::mem::take(&mut self.announced) {
            if let Some(watcher) = self.watchers.get_mut(&id) {
                watcher.tree.settle(node);
            }
        }
        let gone: Vec<_> = self.moving.extract_if(|_, (_, since)| since.elapsed() >= MOVE_PAIRING).collect();
        for ((id, _), (node, _)) in gone {
            self.remove_below(kernel, id, node);
        }
        !self.moving.is_empty()
    }
}

/// Whether the content of a directory that appeared is new, or was moved with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    New,
    Old,
}

impl State {
    /// Reports an event at `path` below the root.
    fn report(&self, describer: &mut Option<Describer>, path: &Path, kind: EventType) {
        let entry = (self.options.include_entry && leaves_entry(kind)).then(|| {
            if describer.is_none() {
                *describer = Describer::load().ok();
            }
            let full =
                if path == Path::new(".") { self.options.root.clone() } else { self.options.root.join(path) };
            describer.as_mut()?.describe(&full).ok()
        });
        self.queue.push(FilesystemEvent {
            name: path.to_string_lossy().into_owned(),
            r#type: kind.into(),
            entry: entry.flatten(),
        });
    }
}

fn root_failed(path: &Path, error: Errno) -> Error {
    let shown = path.display();
    match error {
        Errno::NOENT => Error::not_found(format!("path '{shown}' does not exist")),
        Errno::NOTDIR => Error::invalid_argument(format!("path '{shown}' is not a directory")),
        error => Error::internal(format!("failed to watch '{shown}': {error}")),
    }
}

fn limit_reached(path: &Path) -> Error {
    let limit = fs::read_to_string("/proc/sys/user/max_inotify_watches").unwrap_or_default();
    Error::internal(format!(
        "failed to watch '{}': no more directories can be watched (user.max_inotify_watches is {})",
        path.display(),
        limit.trim()
    ))
}
