"""Wire family `gemini`: generateContent as the Gemini API and Vertex AI speak it (wire 4)."""
