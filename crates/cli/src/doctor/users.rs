//! Whether a program's processes change their user: a server that root starts often runs its workers as another user, with which
//! root's other programs may not share memory.

use super::Check;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A server whose configuration file names the user of its workers.
struct Server {
    /// The program's name, which a version may follow (php-fpm8.2).
    program: &'static str,
    /// Paths of configuration files; one `*` stands for any entry of a directory.
    files: &'static [&'static str],
    /// The words before the user's name on its line.
    key: &'static str,
    /// The default user if there is no such line.
    otherwise: Option<&'static str>,
    /// Advice about that line.
    advice: &'static str,
}

const SERVERS: &[Server] = &[
    Server {
        program: "nginx",
        files: &["etc/nginx/nginx.conf"],
        key: "user",
        otherwise: Some("nobody"),
        advice: "write `user root;` there",
    },
    Server {
        program: "haproxy",
        files: &["etc/haproxy/haproxy.cfg"],
        key: "user",
        otherwise: None,
        advice: "take the lines `user` and `group` out of the section `global`",
    },
    Server {
        program: "apache2",
        files: &["etc/apache2/envvars"],
        key: "export APACHE_RUN_USER",
        otherwise: None,
        advice: "Apache refuses to run its workers as root, so start the other end as that user",
    },
    Server {
        program: "lighttpd",
        files: &["etc/lighttpd/lighttpd.conf"],
        key: "server.username",
        otherwise: None,
        advice: "take the line out",
    },
    Server {
        program: "php-fpm",
        files: &["etc/php/*/fpm/pool.d/*"],
        key: "user",
        otherwise: None,
        advice: "write `user = root` there and start it with --allow-to-run-as-root",
    },
    Server {
        program: "memcached",
        files: &["etc/memcached.conf"],
        key: "-u",
        otherwise: None,
        advice: "write `-u root` there",
    },
    Server {
        program: "mariadbd",
        files: &["etc/mysql/mariadb.conf.d/*", "etc/mysql/conf.d/*", "etc/mysql/my.cnf"],
        key: "user",
        otherwise: None,
        advice: "write `user = root` there",
    },
    Server {
        program: "mysqld",
        files: &["etc/mysql/mysql.conf.d/*", "etc/mysql/conf.d/*", "etc/mysql/my.cnf"],
        key: "user",
        otherwise: None,
        advice: "write `user = root` there",
    },
];

/// The directories of systemd's units, in order of precedence.
const UNITS: [&str; 4] =
    ["etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system"];

/// Interpreters, whose names a version may follow (python3.11). They run a different program each time, so a unit that runs one of
/// them says nothing about other programs.
const INTERPRETERS: [&str; 14] =
    ["sh", "dash", "bash", "ksh", "zsh", "busybox", "env", "java", "lua", "node", "perl", "php", "python", "ruby"];

/// `uid`: the user who would start the program. `root`: directory that is taken for the root of the file system.
pub fn check(program: &Path, uid: u32, root: &Path) -> Check {
    let name = "users";
    if uid != 0 {
        return Check::ok(name, format!("started by user {uid}, it stays that user's"));
    }
    if let Some((server, found)) = SERVERS.iter().find_map(|server| Some((server, server.user(program, root)?))) {
        let (user, place) = (&found.user, found.place());
        return Check::limited(
            name,
            format!("its workers become {user} ({place})"),
            format!("{place}: {}{}", server.advice, or_allow(user)),
        );
    }
    if let Some(found) = by_unit(program, root) {
        let place = found.place();
        return Check::limited(
            name,
            format!("its unit runs it as {} ({place})", found.user),
            format!("run the other end as {} too{}", found.user, or_allow(&found.user)),
        );
    }
    Check::ok(name, "no file is known that gives it another user than root")
}

fn or_allow(user: &str) -> String {
    format!(
        ". Otherwise its connections to programs of root stay on the kernel, unless the file of a broker of root has the \
         line `allow = [{{uids = [\"root\", \"{user}\"]}}]` (docs/CONFIG.md)"
    )
}

/// The user that a file names.
struct Found {
    user: String,
    file: PathBuf,
    /// None: no line names the user; it is the default.
    line: Option<usize>,
}

impl Found {
    fn is_another(&self) -> bool {
        self.user != "root" && self.user != "0"
    }

    fn place(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", self.file.display()),
            None => format!("{}, which names no user", self.file.display()),
        }
    }
}

impl Server {
    /// None: it is another program, or its workers stay root.
    fn user(&self, program: &Path, root: &Path) -> Option<Found> {
        let version = program.file_name()?.to_str()?.strip_prefix(self.program)?;
        if version.contains(|c: char| !c.is_ascii_digit() && c != '.') {
            return None;
        }
        let files: Vec<_> = self.files.iter().flat_map(|pattern| expand(root, pattern)).collect();
        let found = files.iter().find_map(|file| find(file, self.key)).or_else(|| self.default_user(&files))?;
        Some(found).filter(Found::is_another)
    }

    fn default_user(&self, files: &[PathBuf]) -> Option<Found> {
        Some(Found { user: self.otherwise?.into(), file: files.first()?.clone(), line: None })
    }
}

/// The first line of the file that sets the key.
fn find(file: &Path, key: &str) -> Option<Found> {
    let text = String::from_utf8_lossy(&std::fs::read(file).ok()?).into_owned();
    let mut lines = text.lines().enumerate();
    lines.find_map(|(line, text)| {
        let user = value(text, key)?.into();
        Some(Found { user, file: file.into(), line: Some(line + 1) })
    })
}

/// `user www-data;`, `user = mysql`, `-u memcache`, `User=redis`: the first word of the value.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.trim().strip_prefix(key)?;
    let rest = rest.strip_prefix([' ', '\t', '=']).map(|rest| rest.trim_start_matches([' ', '\t', '=']))?;
    let word = rest.split([' ', '\t', ';', '#']).next()?.trim_matches('"');
    (!word.is_empty()).then_some(word)
}

/// The matching files, ordered by name.
fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    pattern.split('/').fold(vec![root.to_path_buf()], |found, part| match part {
        "*" => found.iter().flat_map(|directory| entries(directory)).collect(),
        part => found.into_iter().map(|directory| directory.join(part)).collect(),
    })
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// The unit that starts this program, if the unit names a user.
fn by_unit(program: &Path, root: &Path) -> Option<Found> {
    if is_interpreter(program) {
        return None;
    }
    let units = UNITS.iter().flat_map(|place| entries(&root.join(place)));
    let mut services = units.filter(|path| path.extension() == Some(OsStr::new("service")));
    services.find_map(|unit| {
        let text = std::fs::read_to_string(&unit).ok()?;
        let starts = text.lines().filter_map(|line| value(line, "ExecStart"));
        // systemd.service(5): the path may have a prefix.
        let mut programs = starts.map(|path| Path::new(path.trim_start_matches(['@', '-', ':', '+', '!'])));
        programs.any(|started| started == program || started.file_name() == program.file_name()).then_some(())?;
        find(&unit, "User").filter(Found::is_another)
    })
}

fn is_interpreter(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn of(program: &str, files: &[(&str, &str)]) -> Check {
        check(Path::new(program), 0, root(files).path())
    }

    #[test]
    fn workers_of_another_user_are_noticed() {
        for (program, file, text, line, user) in [
            ("/usr/sbin/nginx", "etc/nginx/nginx.conf", "# user me;\nuser www-data;\nworkers 2;\n", 2, "www-data"),
            ("/usr/sbin/nginx", "etc/nginx/nginx.conf", "user\twww-data www-data ;", 1, "www-data"),
            ("haproxy", "etc/haproxy/haproxy.cfg", "global\n\tuserlist x\n\tuser haproxy\n", 3, "haproxy"),
            ("apache2", "etc/apache2/envvars", "\nexport APACHE_RUN_USER=www-data\n", 2, "www-data"),
            ("lighttpd", "etc/lighttpd/lighttpd.conf", "server.username = \"www-data\"\n", 1, "www-data"),
            ("php-fpm8.2", "etc/php/8.2/fpm/pool.d/www.conf", "; user = x\nuser = www-data\n", 2, "www-data"),
            ("memcached", "etc/memcached.conf", "-m 64\n-u memcache\n", 2, "memcache"),
            (
                "mariadbd",
                "etc/mysql/mariadb.conf.d/50-server.cnf",
                "[mysqld]\nuser                    = mysql\n",
                2,
                "mysql",
            ),
        ] {
            let check = of(program, &[(file, text)]);
            assert_eq!(check.verdict, Verdict::Limited, "{program}: {check:?}");
            assert!(check.found.contains(&format!("become {user} (")), "{check:?}");
            assert!(check.found.ends_with(&format!("{file}:{line})")), "{check:?}");
            let advice = check.advice.unwrap();
            assert!(advice.contains(file) && advice.contains(user), "{advice}");
        }
    }

    #[test]
    fn the_line_that_helps_is_named() {
        let nginx = of("nginx", &[("etc/nginx/nginx.conf", "user www-data;\n")]);
        assert!(nginx.advice.unwrap().contains("etc/nginx/nginx.conf:1: write `user root;` there"));
    }

    /// nginx has a default user from its build.
    #[test]
    fn without_a_line_the_default_counts() {
        for files in [&[("etc/nginx/nginx.conf", "worker_processes 2;\n#user root;\n")][..], &[]] {
            let check = of("nginx", files);
            assert_eq!(check.verdict, Verdict::Limited, "{check:?}");
            assert!(check.found.contains("become nobody (") && check.found.contains("names no user"), "{check:?}");
        }
        assert_eq!(of("haproxy", &[("etc/haproxy/haproxy.cfg", "global\n")]).verdict, Verdict::Ok);
    }

    #[test]
    fn a_unit_that_names_a_user_is_noticed() {
        let unit = "[Service]\nExecStart=-/usr/bin/redis-server /etc/redis.conf\nUser=redis\n";
        let check = of("/usr/bin/redis-server", &[("usr/lib/systemd/system/redis-server.service", unit)]);
        assert_eq!(check.verdict, Verdict::Limited);
        assert!(check.found.contains("runs it as redis (") && check.found.ends_with("redis-server.service:3)"));
        let other = of("/usr/bin/redis-cli", &[("usr/lib/systemd/system/redis-server.service", unit)]);
        assert_eq!(other.verdict, Verdict::Ok);
    }

    #[test]
    fn a_unit_that_runs_a_script_says_nothing_of_its_interpreter() {
        for program in ["/bin/sh", "/usr/bin/python3.11", "/usr/bin/java"] {
            let unit = format!("[Service]\nExecStart={program} /usr/libexec/start.sh\nUser=tomcat\n");
            let check = of(program, &[("usr/lib/systemd/system/tomcat10.service", &unit)]);
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
    }

    #[test]
    fn root_stays_root_and_others_stay_themselves() {
        assert_eq!(of("nginx", &[("etc/nginx/nginx.conf", "userid on;\nuser root;\n")]).verdict, Verdict::Ok);
        assert_eq!(of("mysqldump", &[("etc/mysql/my.cnf", "user = mysql\n")]).verdict, Verdict::Ok);
        let root = root(&[("etc/nginx/nginx.conf", "user www-data;\n")]);
        assert_eq!(check(Path::new("nginx"), 1000, root.path()).verdict, Verdict::Ok);
        assert_eq!(check(Path::new("sh"), 0, root.path()).verdict, Verdict::Ok);
    }
}
