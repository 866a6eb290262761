"""The same as partial_messages under TLS, whose plain text only gRPC holds."""

from harness import TlsFiles, run
from partial_messages import BUDGET_MIB, FLAGS, attack

if __name__ == "__main__":
    files = TlsFiles()
    run(
        "partial messages, TLS",
        lambda target: attack(target, files.context),
        budget_mib=BUDGET_MIB,
        seconds=3,
        flags=(*FLAGS, *files.flags),
        tls=files.context,
    )
