"""Checks deploy/compose.yaml without an engine: the files that it mounts exist, and ports and paths are right."""

import os
import re
import shutil
import sys
import unittest

import running

yaml = running.need_module("yaml")

FOLDER = os.path.join(running.ROOT, "deploy")
COMPOSE = yaml.safe_load(running.read("deploy", "compose.yaml"))
SERVICES = COMPOSE["services"]


class ComposeTest(unittest.TestCase):
    def test_has_the_three_services(self):
        self.assertEqual(set(SERVICES), {"server", "prometheus", "grafana"})

    def test_compose_accepts_it(self):
        docker = shutil.which("docker")
        if docker is None or running.run(docker, "compose", "version").returncode != 0:
            self.skipTest("docker compose is not installed")
        done = running.run(docker, "compose", "-f", os.path.join(FOLDER, "compose.yaml"), "config", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_mounted_files_and_volumes_exist(self):
        for name, service in SERVICES.items():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                with self.subTest(name, source=source):
                    if source.startswith("."):
                        self.assertTrue(os.path.exists(os.path.join(FOLDER, source)))
                        self.assertTrue(volume.endswith(":ro"), "what comes from the project is read-only")
                    else:
                        self.assertIn(source, COMPOSE["volumes"])

    def test_images_are_pinned_and_ports_are_local(self):
        for name, service in SERVICES.items():
            with self.subTest(name):
                self.assertRegex(service["image"], r":(v?\d+\.\d+\.\d+|cpu)$")
                for port in service["ports"]:
                    self.assertRegex(port, r"^127\.0\.0\.1:\d+:\d+$")

    def test_depends_on_services(self):
        for service in SERVICES.values():
            self.assertLessEqual(set(service.get("depends_on", [])), set(SERVICES))

    def test_builds_a_stage_of_the_dockerfile(self):
        build = SERVICES["server"]["build"]
        context = os.path.join(FOLDER, build["context"])
        with open(os.path.join(context, "Dockerfile"), encoding="utf-8") as file:
            self.assertIn(build["target"], re.findall(r"^FROM \S+ AS (\S+)$", file.read(), re.MULTILINE))

    def test_prometheus_scrapes_the_server_and_reads_the_mounted_rules(self):
        config = yaml.safe_load(running.read("deploy", "prometheus", "prometheus.yaml"))
        targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
        self.assertEqual(targets, ["server:9090"])
        self.assertEqual(config["scrape_configs"][0]["job_name"], "sru-server")
        mounted = [volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]]
        self.assertLessEqual(set(config["rule_files"]), set(mounted))
        self.assertIn("--config.file=" + mounted[0], SERVICES["prometheus"]["command"])

    def test_the_server_gets_the_time_that_it_drains(self):
        server = SERVICES["server"]
        drain = float(server["environment"]["SRU_DRAIN_TIMEOUT_S"])
        self.assertGreater(float(server["stop_grace_period"].rstrip("s")), drain)
        self.assertTrue(server["read_only"])
        self.assertEqual(server["cap_drop"], ["ALL"])

    def test_variables_are_flags_of_the_server(self):
        help_text = running.server_help(sys.argv[1])
        for name in SERVICES["server"]["environment"]:
            flag = name.removeprefix("SRU_").lower()
            self.assertRegex(help_text, r"\n  --%s " % flag, "no such flag")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
