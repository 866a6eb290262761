"""The adapters of Spark, Ray and Beam on a few rows: types, names, errors.

    adapters_test.py BUILD ENGINE        ENGINE: spark, ray or beam
"""

import os
import shutil
import sys
import tempfile
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD, ENGINE = os.path.abspath(sys.argv[1]), sys.argv[2]
PYTHON = os.path.join(ROOT, ".cache", "beam-venv" if ENGINE == "beam" else "bulk-venv", "bin", "python")
if not os.path.exists(PYTHON) or ENGINE == "spark" and shutil.which("java") is None:
    print("SKIPPED: no %s (scripts/deps.sh bulk)" % ENGINE)
    sys.exit(77)
if not sys.executable.startswith(os.path.dirname(PYTHON)):
    package = os.path.join(ROOT, "client", "python")
    folder = os.path.join(BUILD, "bin")
    path = {"PATH": folder + os.pathsep + os.environ["PATH"], "PYTHONPATH": package, "PYSPARK_PYTHON": PYTHON}
    os.execve(PYTHON, [PYTHON, "-B", *sys.argv], {**os.environ, **path, "SPARK_LOCAL_IP": "127.0.0.1"})

import pyarrow as pa  # noqa: E402

MODELS = os.path.join(ROOT, "models", "pretrained")
TREC = {"model_repository": MODELS, "model": "trec"}
TEXTS = ["Who painted the ceiling of the old town hall ?", None, " ", "What is a lighthouse for?"]
LABELS = ["HUM", None, None, "DESC"]
ONE = "address= .* or model_repository="


class SparkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from pyspark.sql import SparkSession

        cls.spark = SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", 1).getOrCreate()
        cls.addClassCleanup(cls.spark.stop)
        cls.frame = cls.spark.createDataFrame([(i, text) for i, text in enumerate(TEXTS)], "id int, text string")

    def test_infer(self):
        from sru_inference.spark import infer

        outputs = {"label": "string", "probabilities": "array<float>"}
        rows = infer(self.frame, "text", outputs=outputs, **TREC).orderBy("id").collect()
        self.assertEqual([row.label for row in rows], LABELS)
        self.assertAlmostEqual(sum(rows[0].probabilities), 1, places=5)
        self.assertIsNone(rows[1].probabilities)
        (row,) = infer(self.frame.limit(1), "text", outputs={"encoding": "array<array<float>>"},
                       parameters={"pooling": "none"}, **TREC).collect()  # fmt: skip
        self.assertEqual(len({len(vector) for vector in row.encoding}), 1)
        self.assertEqual(len(row.encoding), 10, "a vector for each token")

    def test_predict_batch_udf(self):
        from pyspark.ml.functions import predict_batch_udf
        from pyspark.sql.types import ArrayType, FloatType, StringType

        from sru_inference.spark import make_predict_fn

        classify, weigh = (
            predict_batch_udf(make_predict_fn(output, **TREC), return_type=kind, batch_size=3)
            for output, kind in (("label", StringType()), ("probabilities", ArrayType(FloatType())))
        )
        rows = self.frame.select("id", classify("text").alias("label"), weigh("text").alias("all")).orderBy("id").collect()
        self.assertEqual([row.label for row in rows], LABELS)
        self.assertAlmostEqual(sum(rows[3].all), 1, places=5)

    def test_errors(self):
        from sru_inference.spark import infer

        with self.assertRaisesRegex(ValueError, "a column words and without label, found id, text"):
            infer(self.frame, "words", outputs={"label": "string"}, **TREC)
        with self.assertRaisesRegex(ValueError, "without text, found id, text"):
            infer(self.frame, "text", outputs={"text": "string"}, **TREC)
        with self.assertRaisesRegex(ValueError, ONE):
            infer(self.frame, "text", outputs={"label": "string"})


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import ray

        ray.init(num_cpus=2, include_dashboard=False)
        cls.addClassCleanup(ray.shutdown)
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        cls.dataset = ray.data.from_arrow(pa.table({"text": TEXTS}))

    def test_infer(self):
        from sru_inference.ray import infer

        rows = infer(self.dataset, "text", outputs=["label", "probabilities"], concurrency=(1, 2), **TREC).take_all()
        self.assertEqual([row["label"] for row in rows], LABELS)
        self.assertAlmostEqual(sum(rows[3]["probabilities"]), 1, places=5)

    def test_the_class_alone(self):
        from sru_inference.ray import Infer

        table = Infer("text", **TREC)(pa.table({"text": TEXTS}))
        self.assertEqual(table.to_pydict(), {"text": TEXTS, "label": LABELS})

    def test_errors(self):
        from sru_inference.ray import infer

        with self.assertRaisesRegex(ValueError, ONE):
            infer(self.dataset, "text", address="localhost:1", **TREC)
        with self.assertRaisesRegex(TypeError, "batchsize"):
            infer(self.dataset, "text", batchsize=1, **TREC)


class BeamTest(unittest.TestCase):
    def answers(self, elements, handler):
        """What is found, as lines in order."""
        import apache_beam as beam
        from apache_beam.ml.inference.base import RunInference

        with beam.Pipeline() as pipeline:
            out = os.path.join(tempfile.mkdtemp(), "answers")
            self.addCleanup(shutil.rmtree, os.path.dirname(out))
            answers = pipeline | beam.Create(elements) | RunInference(handler)
            answers | beam.Map(repr_of) | beam.io.WriteToText(out, shard_name_template="")
        with open(out, encoding="utf-8") as file:
            return sorted(file.read().splitlines())

    def test_arrays_tables_and_keys(self):
        from apache_beam.ml.inference.base import KeyedModelHandler

        from sru_inference.beam import ModelHandler

        texts = pa.array(TEXTS)
        self.assertEqual(self.answers([texts], ModelHandler(**TREC)), ["None %r" % LABELS])
        handler = ModelHandler(column="text", **TREC)
        self.assertEqual(self.answers([pa.table({"text": texts})], handler), ["None %r" % LABELS])
        keyed = [("a", texts.slice(0, 1)), ("b", texts.slice(3))]
        self.assertEqual(self.answers(keyed, KeyedModelHandler(ModelHandler(**TREC))), ["a ['HUM']", "b ['DESC']"])

    def test_the_handler(self):
        from sru_inference.beam import ModelHandler

        with self.assertRaisesRegex(ValueError, ONE):
            ModelHandler()
        handler = ModelHandler(**TREC)
        array = pa.array(TEXTS)
        self.assertEqual(handler.get_num_bytes([array, array]), 2 * array.nbytes)
        self.assertEqual(handler.batch_elements_kwargs(), {"min_batch_size": 1, "max_batch_size": 1})


def repr_of(result):
    key, prediction = result if len(result) == 2 else (None, result)
    return "%s %r" % (key, prediction.inference["label"].to_pylist())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], defaultTest=ENGINE.capitalize() + "Test", verbosity=2)
