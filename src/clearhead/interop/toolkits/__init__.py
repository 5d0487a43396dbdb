"""Import of toolkit models: fairseq, OpenNMT-py, eole, JoeyNMT and Marian-nmt."""
