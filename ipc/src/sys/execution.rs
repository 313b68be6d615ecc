//! Executes a file as what it is, and apart from its starter: `execvp` hands a file that the kernel does not know as an
//! executable to a shell, which would run whatever is in it, or nothing, under the name of a worker.
#![expect(unsafe_code, reason = "a command's last steps before its execution have no safe wrapper")]

use std::{
    ffi::{CString, c_char},
    io,
    os::unix::process::CommandExt,
    process::Command,
    ptr,
};

use nix::{errno::Errno, sys::signal::Signal, unistd::setsid};

use super::ignore_signals;

/// A program, and what it is given, as `execve` takes them.
struct Execution {
    program: CString,
    /// Owns what `pointers` points to.
    _arguments: Vec<CString>,
    /// To each argument, and a last null.
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers lead to the heap of the arguments beside them, which nobody changes.
unsafe impl Send for Execution {}
// SAFETY: as above; a shared execution is read only.
unsafe impl Sync for Execution {}

impl Execution {
    fn new(program: CString, arguments: Vec<CString>) -> Self {
        let mut pointers: Vec<*const c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(ptr::null());
        Self { program, _arguments: arguments, pointers }
    }

    /// Returns only where it fails.
    fn execute(&self) -> io::Error {
        let environment = [ptr::null::<c_char>()];
        // SAFETY: the path ends with a zero byte, both lists with a null, and all of it outlives the call.
        unsafe { libc::execve(self.program.as_ptr(), self.pointers.as_ptr(), environment.as_ptr()) };
        Errno::last().into()
    }
}

/// Has `command` execute `program` with `arguments`, its own name first, and an empty environment, after all else
/// that the command does in the new process. What the command itself was to execute, and with which arguments, is
/// passed by; what the kernel says of the file is the error of the spawn.
pub fn execute_exactly(command: &mut Command, program: CString, arguments: Vec<CString>) {
    let execution = Execution::new(program, arguments);
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(move || Err(execution.execute())) };
}

/// Has `command` begin in a session of its own, which neither a terminal's keys nor a signal to its starter's group
/// reach, and with `signals` ignored: before its program runs, so that no moment is left in which it is ended by one.
pub fn begin_apart(command: &mut Command, signals: &'static [Signal]) {
    let begin = move || {
        setsid()?;
        ignore_signals(signals)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls alone and allocates nothing.
    unsafe { command.pre_exec(begin) };
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

    use super::*;

    fn executed(program: &str, arguments: &[&str]) -> io::Result<String> {
        let mut command = Command::new(program);
        let arguments = arguments.iter().map(|argument| CString::new(*argument).unwrap()).collect();
        execute_exactly(&mut command, CString::new(program).unwrap(), arguments);
        let output = command
            .env("SET", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?
            .wait_with_output()?;
        Ok(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn a_program_gets_its_arguments_and_no_environment() {
        assert_eq!(
            executed("/bin/sh", &["name", "-c", "echo $0 $1 $SET.", "zero", "one"]).unwrap(),
            "zero one .\n"
        );
    }

    /// A file without a format that the kernel knows is refused, and no shell reads it.
    #[test]
    fn no_shell_reads_what_the_kernel_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("text");
        fs::write(&file, "echo a shell ran\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = executed(file.to_str().unwrap(), &["text"]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOEXEC));
    }
}
