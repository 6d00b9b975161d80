//! Users and groups, read from `/etc/passwd` and `/etc/group` directly: the agent is a static binary, for which the C
//! library's name services do not work. Files are read anew each time, since users come and go in a sandbox.

use std::fs;
use std::io;
use std::path::Path;

/// An account that processes run under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// All group ids, the primary one first.
    pub groups: Vec<u32>,
    /// Home directory, absolute.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

impl Account {
    /// The superuser of a system without `/etc/passwd`.
    fn bare_root() -> Self {
        Self {
            name: "root".into(),
            uid: 0,
            gid: 0,
            groups: vec![0],
            home: "/root".into(),
            shell: "/bin/sh".into(),
        }
    }
}

/// The users and groups in the two files at one time.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    users: Vec<User>,
    groups: Vec<Group>,
}

#[derive(Debug, Clone)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
    shell: String,
}

#[derive(Debug, Clone)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

impl Accounts {
    /// Reads `/etc/passwd` and `/etc/group`. A file that is missing counts as empty.
    pub fn load() -> io::Result<Self> {
        Self::load_from(Path::new("/etc"))
    }

    /// Reads `passwd` and `group` in `directory`.
    pub fn load_from(directory: &Path) -> io::Result<Self> {
        let read = |name: &str| match fs::read(directory.join(name)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(e) => Err(io::Error::new(
                e.kind(),
                format!("failed to read `{}`: {e}", directory.join(name).display()),
            )),
        };
        Ok(Self::parse(&read("passwd")?, &read("group")?))
    }

    /// Reads the text of the two files; malformed lines are skipped, as by the C library.
    pub fn parse(passwd: &str, group: &str) -> Self {
        Self {
            users: passwd.lines().filter_map(User::parse).collect(),
            groups: group.lines().filter_map(Group::parse).collect(),
        }
    }

    /// The user called `name`, or with this number when no user is called so.
    pub fn lookup(&self, name: &str) -> Option<Account> {
        let by_number = || {
            let number: u32 = name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok())??;
            self.users.iter().find(|u| u.uid == number)
        };
        let Some(user) = self.users.iter().find(|u| u.name == name).or_else(by_number) else {
            return (name == "root" && self.users.is_empty()).then(Account::bare_root);
        };
        let mut groups = vec![user.gid];
        for group in self.groups.iter().filter(|g| g.members.contains(&user.name)) {
            if !groups.contains(&group.gid) {
                groups.push(group.gid);
            }
        }
        Some(Account {
            name: user.name.clone(),
            uid: user.uid,
            gid: user.gid,
            groups,
            home: user.home.clone(),
            shell: user.shell.clone(),
        })
    }

    /// The id of the group called `name`.
    pub fn group_id(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|g| g.name == name).map(|g| g.gid)
    }

    /// Whether a user has `id` as its own or its primary group's, or a group has it.
    pub fn uses(&self, id: u32) -> bool {
        self.users.iter().any(|u| u.uid == id || u.gid == id) || self.groups.iter().any(|g| g.gid == id)
    }

    /// The name of user `uid`, or the number as text when the user has none.
    pub fn user_name(&self, uid: u32) -> String {
        self.users.iter().find(|u| u.uid == uid).map_or_else(|| uid.to_string(), |u| u.name.clone())
    }

    /// The name of group `gid`, or the number as text when the group has none.
    pub fn group_name(&self, gid: u32) -> String {
        self.groups.iter().find(|g| g.gid == gid).map_or_else(|| gid.to_string(), |g| g.name.clone())
    }
}

impl User {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next().filter(|n| !n.is_empty() && !n.starts_with('#'))?;
        let _password = fields.next()?;
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let _comment = fields.next()?;
        let home = fields.next().filter(|h| !h.is_empty()).unwrap_or("/");
        let shell = fields.next().filter(|s| !s.is_empty()).unwrap_or("/bin/sh");
        Some(Self { name: name.into(), uid, gid, home: home.into(), shell: shell.into() })
    }
}

impl Group {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next().filter(|n| !n.is_empty() && !n.starts_with('#'))?;
        let _password = fields.next()?;
        let gid = fields.next()?.parse().ok()?;
        let members = fields.next().unwrap_or_default();
        let members = members.split(',').map(str::trim).filter(|m| !m.is_empty()).map(Into::into).collect();
        Some(Self { name: name.into(), gid, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n# note\nbroken:x\nuser:x:1000:1001::/home/user:\n";
    const GROUP: &str = "root:x:0:\nsudo:x:27:user,other\nuser:x:1001:user\n";

    #[test]
    fn a_user_has_its_primary_group_first_and_each_group_once() {
        let account = Accounts::parse(PASSWD, GROUP).lookup("user").unwrap();
        assert_eq!((account.uid, account.gid), (1000, 1001));
        assert_eq!(account.groups, [1001, 27]);
        assert_eq!((account.home.as_str(), account.shell.as_str()), ("/home/user", "/bin/sh"));
    }

    #[test]
    fn unknown_ids_are_shown_as_numbers() {
        let accounts = Accounts::parse(PASSWD, GROUP);
        assert_eq!(accounts.user_name(1000), "user");
        assert_eq!(accounts.group_name(27), "sudo");
        assert_eq!(accounts.user_name(4711), "4711");
        assert_eq!(accounts.group_name(4711), "4711");
        assert_eq!(accounts.lookup("broken"), None);
        assert_eq!(accounts.lookup(""), None);
        assert_eq!(accounts.group_id("sudo"), Some(27));
    }

    #[test]
    fn a_user_can_be_named_by_its_number() {
        let accounts = Accounts::parse(PASSWD, GROUP);
        assert_eq!(accounts.lookup("1000").map(|a| a.name).as_deref(), Some("user"));
        assert_eq!(accounts.lookup("4711"), None);
        assert_eq!(accounts.lookup("+1000"), None);
    }

    #[test]
    fn root_exists_without_a_passwd_file() {
        assert_eq!(Accounts::default().lookup("root").map(|a| a.uid), Some(0));
        assert_eq!(Accounts::default().lookup("user"), None);
    }
}
