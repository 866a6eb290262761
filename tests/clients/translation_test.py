"""The server as the packages `deepl` and `libretranslatepy` see it: small random translators between English and German.

    translation_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import atexit
import json
import os
import shutil
import struct
import sys
import tempfile
import unittest
import urllib.error

import clients_venv
from clients_venv import TOKEN, tokens_file

clients_venv.enter("deepl", "libretranslatepy", "grpc")

import deepl  # noqa: E402
from libretranslatepy import LibreTranslateAPI  # noqa: E402

ENGLISH = "This is a short English sentence. It says nothing at all."


def make_talkative(path):
    """Makes the four special pieces improbable, the end among them: no translation is empty."""
    with open(path, "r+b") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        begin = json.loads(file.read(size))["generator.0.bias"]["data_offsets"][0]
        file.seek(8 + size + begin)
        file.write(struct.pack("<4f", *4 * [-100.0]))


def make_repository():
    """Two copies of a translator of the tests, with other languages."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory)
    model = os.path.join(clients_venv.ROOT, "tests", "data", "models", "old_translator", "1")
    for source, target in (("en", "de"), ("de", "en")):
        path = os.path.join(directory, "models", source + "_" + target, "1")
        shutil.copytree(model, path)
        make_talkative(os.path.join(path, "model.safetensors"))
        config = os.path.join(path, "config.json")
        with open(config, encoding="utf-8") as file:
            content = json.load(file)
        content["translator"].update(source_language=source, target_language=target)
        with open(config, "w", encoding="utf-8") as file:
            json.dump(content, file)
    return os.path.join(directory, "models"), tokens_file(directory)


sys.argv[3], TOKENS = make_repository()
from server_process import Server  # noqa: E402


class TranslationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--auth_tokens_file=" + TOKENS)
        cls.addClassCleanup(cls.server.stop)
        cls.url = "http://127.0.0.1:%d" % cls.server.http_port
        cls.deepl = deepl.DeepLClient(TOKEN, server_url=cls.url)
        cls.libre = LibreTranslateAPI(cls.url, api_key=TOKEN)

    def test_deepl_translates(self):
        one = self.deepl.translate_text(ENGLISH, target_lang="DE")
        self.assertEqual(one.detected_source_lang, "EN")
        self.assertEqual(one.billed_characters, len(ENGLISH))
        several = self.deepl.translate_text([ENGLISH, "a b"], source_lang="EN", target_lang="DE")
        self.assertEqual([one.text, 2], [several[0].text, len(several)])

    def test_deepl_keeps_white_space_and_tags(self):
        def translate(text, **options):
            return self.deepl.translate_text(text, source_lang="EN", target_lang="DE", **options).text

        part = translate("a b c")
        self.assertTrue(part)
        self.assertEqual(translate(" a b c\n\na b c "), " %s\n\n%s " % (part, part))
        self.assertEqual(
            translate("<p>a b c</p><script>a</script>", tag_handling="html"), "<p>%s</p><script>a</script>" % part
        )
        self.assertEqual(
            translate("<x><y>a b c</y><z>a</z></x>", tag_handling="xml", splitting_tags=["y"], ignore_tags=["z"]),
            "<x><y>%s</y><z>a</z></x>" % part,
        )

    def test_deepl_options(self):
        def translate(**options):
            return self.deepl.translate_text("a b c", source_lang="EN", target_lang="DE", **options).text

        plain = translate()
        for options in (
            {"context": "d e"},
            {"preserve_formatting": True},
            {"formality": "prefer_less"},
            {"split_sentences": "nonewlines"},
            {"split_sentences": deepl.SplitSentences.OFF},
            {"model_type": "latency_optimized"},
            {"extra_body_parameters": {"unknown": "1"}},
        ):
            self.assertEqual(translate(**options), plain, options)
        for name, options in (
            ("glossary_id", {"glossary": "some-id"}),
            ("style_id", {"style_rule": "some-id"}),
            ("custom_instructions", {"custom_instructions": ["Be brief."]}),
        ):
            with self.assertRaisesRegex(deepl.DeepLException, "'%s' is not supported" % name):
                translate(**options)

    def test_deepl_languages_and_usage(self):
        self.assertEqual([(x.code, x.name) for x in self.deepl.get_source_languages()], [("DE", "German"), ("EN", "English")])
        targets = self.deepl.get_target_languages()
        self.assertEqual([(x.code, x.supports_formality) for x in targets], [("DE", False), ("EN", False)])
        usage = self.deepl.get_usage()
        self.assertFalse(usage.any_limit_reached)
        self.assertTrue(usage.character.valid)

    def test_deepl_has_no_glossaries(self):
        self.assertEqual(self.deepl.get_glossary_languages(), [])
        self.assertEqual(self.deepl.list_glossaries(), [])

    def test_deepl_errors(self):
        with self.assertRaisesRegex(deepl.DeepLException, "no model translates into 'FR'"):
            self.deepl.translate_text("a", target_lang="FR")
        with self.assertRaisesRegex(deepl.DeepLException, "'formality' is not supported"):
            self.deepl.translate_text("a", target_lang="DE", formality="more")
        with self.assertRaises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=self.url).get_usage()

    def test_libretranslate(self):
        text = self.libre.translate("a b c", "en", "de")
        self.assertEqual(text, self.deepl.translate_text("a b c", source_lang="EN", target_lang="DE").text)
        self.assertEqual(self.libre.translate(ENGLISH, "auto", "de"), self.libre.translate(ENGLISH, "en", "de"))
        self.assertEqual(self.libre.detect(ENGLISH)[0]["language"], "en")
        self.assertEqual(
            self.libre.languages(),
            [
                {"code": "de", "name": "German", "targets": ["en"]},
                {"code": "en", "name": "English", "targets": ["de"]},
            ],
        )

    def test_libretranslate_errors(self):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.libre.translate("a", "en", "fr")
        self.assertEqual(caught.exception.code, 400)
        self.assertIn("no model translates into 'fr'", json.load(caught.exception)["error"])
        with self.assertRaises(urllib.error.HTTPError) as caught:
            LibreTranslateAPI(self.url, api_key="wrong").detect("a")
        self.assertEqual(caught.exception.code, 403)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
