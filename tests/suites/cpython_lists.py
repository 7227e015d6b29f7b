"""What is excused among CPython's tests, each with its reason. The results name what of it was met."""

# Patterns of tests that are not run in any way. AF_VSOCK is no business of ours, and its test waits for ever in a
# virtual machine that offers no loopback for it.
NOT_RUN = ("*VSOCK*",)

# Tests that fail or are skipped under Sidestep only, by an assumption of their own that no program makes.
EXCUSED = {}

# Reasons, as the tests themselves give them, for which tests are skipped without Sidestep too.
SKIPS = (
    # Another operating system's.
    r"[Ww]indows|[Ww]in32|msvcrt|NTFS|macOS|Mac OS|Linux specific test|DevpollSelector|KqueueSelector",
    r"32-bit builds|headers and trailers support|os.random\(\) does not use a file descriptor|\*NIX buildbots",
    # The kernel or the machine has it not, and it is no TCP.
    r"AF_ALG|Bluetooth|ISOTP|J1939|QIPCRTR|RDS sockets|SocketCan|TIPC|SCTP|VSOCK|UDPLITE|Hyper-V|HyperV",
    # Debian's OpenSSL, locale or time zone has it not.
    r"(SSLv2|SSLv3|TLSv1|TLSv1_1) is not available|Python default ciphers|local time needs to be|locale-specific month",
    # The internet, which tests do without.
    r"network is not enabled|'network' (is|resource) not enabled|resource 'network' is not enabled",
    # A class of tests that is run for several kinds of object leaves out what one of them has not.
    r"only makes sense with processes|not appropriate for|not applicable to|only relevant for '\w+' method",
    r"executable argument replaces shell",
    # The tests' authors have switched it off, or it needs another user, a terminal, much memory, a low limit of
    # descriptors, or another build of Python.
    r"FIXME|bpo-\d+|issue #?\d+|can't be run reliably as root|superuser|non-root account|scope id does not work",
    r"gettotalrefcount|debug build|set\w+\(\) available|terminal|stty|2 groups|not enough memory",
    r"file descriptor limit|library cannot be loaded with an empty environment",
)
